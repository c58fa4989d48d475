"""The history checker on the command line."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence

from tests.history import storms
from tests.history.disturbing import DISTURBANCES
from tests.history.faults import FATES
from tests.history.plans import KINDS
from tests.history.rounds import MOST_TOLD, Rounds, crew
from tests.history.series import WAYS, series
from tests.support.clusters import cluster
from tests.support.holes import HOLES, open_holes
from tests.support.servers import IN_MEMORY, binaries, module_options, running


def main(arguments: Sequence[str] | None = None) -> int:
    """Run rounds on each server asked for; print the seed and the results."""
    options = _parsed(arguments)
    seed = random.SystemRandom().randrange(2**32) if options.seed is None else options.seed
    wrong = False
    open_holes(options.hole)  # this process has workers that clear filters, too
    with crew(options.hole) as workers:
        workers.ready()
        for name in options.server if options.cluster else ():
            with cluster(binaries()[name]) as nodes:
                kinds = [kind for kind in options.kind if kind in storms.KINDS]
                found = storms.Storms(nodes, workers, seed, kinds).check(options.answers, first=options.round)
            _say("\n".join([f"--seed {seed} --server {name} --cluster: {found}", *found.wrong]))
            wrong = wrong or bool(found.wrong)
        for name in () if options.cluster else options.server:
            binary = binaries()[name]
            loading = module_options(binary)
            kinds = [kind for kind in options.kind if kind != "module" or loading]
            if not kinds:
                _say(f"{name} is left out: it does not load the module")
                continue
            with running(binary, *IN_MEMORY, *loading) as server:
                rounds = Rounds(server, workers, seed, kinds=kinds, without=options.without)
                found = rounds.check(options.answers, first=options.round)
                told = [f"--seed {seed} --server {name}: {found}", *found.wrong]
                for way in WAYS if options.series else ():
                    wrong_items, figures = series(server, seed, options.series, way)
                    told += [f"{name}, {figures}", *wrong_items[:MOST_TOLD]]
                    wrong = wrong or bool(wrong_items)
            _say("\n".join(told))
            wrong = wrong or bool(found.wrong)
    return 1 if wrong else 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.history", description=__doc__)
    parser.add_argument(
        "--seed", type=int, help="repeat the faults and calls of this seed; default: a new one"
    )
    parser.add_argument("--answers", type=int, default=100_000, help="number of answers on each server")
    parser.add_argument(
        "--server", type=_list, default=sorted(binaries()), help=", ".join(sorted(binaries()))
    )
    parser.add_argument("--round", type=int, default=0, help="start with this round")
    parser.add_argument("--kind", type=_list, default=KINDS, help=f"kinds of rounds: {', '.join(KINDS)}")
    every = (*FATES, *DISTURBANCES, "raise", "recreate")
    parser.add_argument(
        "--without", type=_list, default=[], help=f"leave these out, separated by commas: {', '.join(every)}"
    )
    parser.add_argument("--hole", type=_list, default=[], help=f"open these holes: {', '.join(HOLES)}")
    parser.add_argument(
        "--cluster", action="store_true", help="use a cluster whose nodes freeze, die and move slots"
    )
    parser.add_argument("--series", type=int, default=0, help="also add new items, this many in each way")
    return parser.parse_args(arguments)


def _list(text: str) -> list[str]:
    return text.split(",")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
