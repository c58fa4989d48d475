"""All errors of the library: their parts, the page about them, and what must not look at their texts."""

from __future__ import annotations

import ast
import copy
import pickle
import re
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import bloomredis
from bloomredis import (
    BloomFilter,
    CountingBloomFilter,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
    errors,
)
from bloomredis.operations.items.outcomes import interrupted_by
from bloomredis.protocol.pending import Answers, PendingCalls, SentItems
from bloomredis.protocol.replies import explained
from tests.support import error_page
from tests.support.error_page import PACKAGE, PAGE, constructions, modules, page, rows
from tests.support.servers import Server
from tests.support.values import for_each

WAYS_OUT: dict[str, Any] = {"advice": "call again", "command": "run it again"}
ERRORS: list[errors.BloomError] = [
    *(
        kind("'seen' is not there", **WAYS_OUT)
        for kind in error_page.CLASSES.values()
        if not issubclass(kind, errors.ServerRefusedError | errors.OutcomeUnknownError)
    ),
    errors.ConnectionFailedError("'seen' is not there", reason="no", transient=False, **WAYS_OUT),
    errors.ServerRefusedError("'seen' is not there", "OOM", **WAYS_OUT),
    errors.OutcomeUnknownError("'seen' is not there", "token", **WAYS_OUT),
    errors.RefusedOutcomeUnknownError("'seen' is not there", "OOM", "token", **WAYS_OUT),
    errors.BatchInterruptedError("'seen' is not there", [True], ["x"], ["token"], **WAYS_OUT),
]


@pytest.mark.lint
def test_each_error_says_the_way_out() -> None:
    """Each error in the source has the way out in Python; that of the command is the same, or given."""
    without = [
        f"{module.name}:{call.lineno}"
        for module in modules()
        for call in constructions(module)
        if "advice" not in {each.arg for each in call.keywords}
    ]
    assert without == []
    assert {row.kind for row in rows()} == set(error_page.CLASSES)


@pytest.mark.docs
def test_the_page() -> None:
    """docs/errors.md lists all of them; `python -m tests.support.error_page` writes it."""
    assert PAGE.read_text("utf-8") == page()


def looked_for() -> Iterator[tuple[str, str]]:
    """Yield each constant that code looks for in a text, and where."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            sought: list[ast.expr] = []
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In):
                sought = [node.left]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
                splits = node.func.attr in (
                    "partition",
                    "rpartition",
                    "split",
                    "startswith",
                    "endswith",
                    "find",
                )
                sought = node.args[:1] if of_re or splits else []
            for each in sought:
                if isinstance(each, ast.Constant) and isinstance(each.value, str) and len(each.value) > 3:
                    yield each.value, f"{path.name}:{each.lineno}"


@pytest.mark.lint
def test_no_code_looks_for_a_text_of_the_library() -> None:
    """No code recognises an error by a part of its text: the parts are attributes."""
    texts = [text for row in rows() for text in (row.problem, row.advice, row.command)]
    found = [
        (sought, where)
        for sought, where in looked_for()
        if any(words in text for words in re.findall(r"[a-z]+ [a-z]+[a-z ]*", sought) for text in texts)
    ]
    assert found == []
    assert len(list(looked_for())) > 20


@for_each("error", ERRORS)
def test_copies(error: errors.BloomError) -> None:
    """A pickled error and a copy have the same text and parts."""
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301
        assert (type(other), str(other), vars(other)) == (type(error), str(error), vars(error))
        assert (other.problem, other.advice, other.command) == ("'seen' is not there", *WAYS_OUT.values())
        assert other.transient is error.transient
    assert str(error) == "'seen' is not there; call again"


def raise_interrupted() -> None:
    """Raise the error of a batch whose cause and answers cannot be pickled."""
    refused = explained(RuntimeError("OOM command not allowed"), "seen")
    error = interrupted_by(refused, "add_many", [True], ["x", "y"], ["token"])
    error.results = Answers([True], [([0], SentItems(PendingCalls(), ["x"], [(0, b"")]))])
    raise error from refused


def test_another_process() -> None:
    """An error of a worker process arrives with its parts."""
    interrupted = pytest.raises(errors.BatchInterruptedError, match="then go on with add_many")
    with ProcessPoolExecutor(1, get_context("spawn")) as pool, interrupted as met:
        pool.submit(raise_interrupted).result()
    assert (met.value.results, met.value.rest, met.value.tokens) == ([True], ["y"], ["token"])
    assert type(met.value.results) is list
    assert met.value.transient
    assert "free memory" in met.value.command


@for_each(
    ("error", "transient"),
    [
        (errors.ServerRefusedError("", "LOADING"), True),
        (errors.ServerRefusedError("", "NOPERM"), False),
        (errors.RefusedOutcomeUnknownError("", "OOM"), True),
        (errors.RefusedOutcomeUnknownError("", "ERR"), False),
        (errors.OutcomeUnknownError(""), True),
        (errors.ConnectionFailedError(""), True),
        (errors.FilterLostError(""), False),
    ],
)
def test_what_is_transient(error: errors.BloomError, transient: bool) -> None:  # noqa: FBT001 - the answer
    """An error says whether its reason may end by itself; that of a batch is as its cause is."""
    assert error.transient is transient
    assert interrupted_by(error, "add_many", [], ["x"], ()).transient is transient


def test_a_final_error_does_not_pass() -> None:
    """No retry helps if the server has forgotten the call."""
    error = errors.OutcomeUnknownError("")
    error.final = True
    assert not error.transient


CLASSES: dict[str, Any] = {
    "BloomFilter": BloomFilter,
    "CountingBloomFilter": CountingBloomFilter,
    "ScalingBloomFilter": ScalingBloomFilter,
    "RotatingBloomFilter": partial(RotatingBloomFilter, window=3600),
    "ShardedBloomFilter": ShardedBloomFilter,
}


@for_each("stored", CLASSES)
@for_each("wanted", CLASSES)
def test_a_filter_of_another_class(any_client: redis.Redis, stored: str, wanted: str) -> None:
    """Whoever opens or creates it is told what it is, and the class that opens it."""
    any_client.flushall()
    made = CLASSES[stored](any_client, "seen", capacity=100, error_rate=0.01)
    made.create()
    uses: list[Callable[[], object]] = [
        lambda: getattr(bloomredis, wanted).open(any_client, "seen"),
        lambda: CLASSES[wanted](any_client, "seen", capacity=100, error_rate=0.01).add("x"),
    ]
    for use in uses:
        if stored == wanted:
            use()
        else:
            says = f"'seen' is a {stored}, not a {wanted}; open it with {stored}, or use another name"
            with pytest.raises(errors.FilterMismatchError) as met:
                use()
            assert str(met.value) == says


@for_each("name", CLASSES)
def test_a_missing_filter_is_one_traceback(any_client: redis.Redis, name: str) -> None:
    """The error of a missing filter shows none of the machinery's own."""
    any_client.flushall()
    with pytest.raises(errors.FilterNotFoundError, match=f"give capacity= and error_rate= to {name}") as met:
        getattr(bloomredis, name).open(any_client, "seen")
    assert "".join(traceback.format_exception(met.value)).count("Traceback") == 1


@for_each("name", CLASSES)
@for_each("verb", ["add", "contains", "claim", "create", "info"])
def test_an_unreachable_server(name: str, verb: str) -> None:
    """The error names the filter, what to do, and that a repetition does no harm; an add changed nothing."""
    seen = CLASSES[name](
        redis.Redis(port=1, retry=Retry(NoBackoff(), 0)), "seen", capacity=100, error_rate=0.01
    )
    with pytest.raises(errors.BloomError) as met:
        getattr(seen, verb)(*["x"] * (verb in ("add", "contains", "claim")))
    assert "a call on 'seen' " in str(met.value)
    assert met.value.transient
    if type(met.value) is errors.ConnectionFailedError:
        assert met.value.advice.startswith(
            "start the server, or give the client its host and port; then repeat"
        )


def test_a_refusal_names_the_filter(server: Server) -> None:
    """It is the filter that the caller named, whatever keys the call has."""
    with server.client() as client:
        client.config_set("maxmemory", "1")
        try:
            for make in CLASSES.values():
                with pytest.raises(
                    errors.ServerRefusedError, match=r"refused \(OOM\) a call on .seen"
                ) as met:
                    make(client, "seen", capacity=100, error_rate=0.01).add("x")
                assert met.value.transient
        finally:
            client.config_set("maxmemory", "0")
