"""`python -m tests.schedules` searches a schedule for each hole without one that works, and writes it.

The arguments are holes whose schedules are searched again.
"""

from __future__ import annotations

import sys

from tests.schedules import lines
from tests.schedules.running import is_right, search
from tests.simulation.holes import WITH
from tests.simulation.running import Simulator


def main() -> int:
    """Search, and write; return 1 if a hole is left without a schedule."""
    again = set(sys.argv[1:])
    simulator = Simulator()
    with simulator.installed():
        found = {
            each.hole: each
            for each in (lines.read() if lines.FILE.exists() else ())
            if each.hole not in again and is_right(simulator, each)
        }
        for hole in WITH:
            if hole not in found and (made := search(simulator, hole)):
                found[hole] = made
                sys.stdout.write(f"{hole}: {len(made.actions)} actions, {made.rule}\n")
                sys.stdout.flush()
                lines.write(found[each] for each in WITH if each in found)
    left = [hole for hole in WITH if hole not in found]
    sys.stdout.write(f"without a schedule: {', '.join(left) or 'none'}\n")
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
