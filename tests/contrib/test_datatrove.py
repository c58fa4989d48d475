"""Pipelines of datatrove: the first of equal documents is kept, across tasks and runs."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

from bloomredis import BloomFilter
from bloomredis.contrib.datatrove import SeenFilter
from tests.contrib import pages
from tests.contrib.violence import KEPT, calls, restarting
from tests.support.servers import Server, running

SIZE: dict[str, Any] = {"capacity": 20_000, "error_rate": 1e-9}
TASKS = 8


class Dies:
    """A step that fails once, in the first task that has passed on enough documents."""

    def __init__(self, mark: Path, after: int) -> None:
        self._mark, self._after = mark, after

    def __call__(self, data: Any, rank: int = 0, world_size: int = 1) -> Any:
        for number, document in enumerate(data):
            if number == self._after and self._is_first():
                raise OSError("the node is gone")
            yield document

    def _is_first(self) -> bool:
        with suppress(FileExistsError):
            self._mark.touch(exist_ok=False)
            return True
        return False


@pytest.fixture
def corpus(tmp_path: Path) -> list[str]:
    """The texts of eight files; many texts occur more than once."""
    draw = random.Random(1)
    texts = [f"text {draw.randrange(3000)}" for _ in range(8000)]
    (tmp_path / "in").mkdir()
    for task in range(TASKS):
        lines = [json.dumps({"text": text}) + "\n" for text in texts[task::TASKS]]
        (tmp_path / "in" / f"{task}.jsonl").write_text("".join(lines))
    return texts


def pipeline(folder: Path, url: str, *between: Any, logs: str = "logs") -> LocalPipelineExecutor:
    """Return the executor of a job with a reader, the filter and a writer."""
    seen = BloomFilter.from_url(url, "corpus", **SIZE)
    steps = [
        JsonlReader(str(folder / "in")),
        SeenFilter(seen, job="job", batch_size=100),
        *between,
        JsonlWriter(str(folder / "out"), compression=None),
    ]
    return LocalPipelineExecutor(steps, tasks=TASKS, workers=4, logging_dir=str(folder / logs))


def written(folder: Path) -> Counter[str]:
    """Return how many times each text is in the output."""
    lines = [line for path in (folder / "out").glob("*.jsonl") for line in path.read_text().splitlines()]
    return Counter(json.loads(line)["text"] for line in lines)


def test_the_output_of_all_tasks_is_the_corpus_once(
    corpus: list[str], tmp_path: Path, any_server: Server
) -> None:
    """Eight tasks in four processes."""
    pipeline(tmp_path, any_server.url).run()
    assert written(tmp_path) == dict.fromkeys(corpus, 1)


def test_a_task_that_is_run_again_drops_nothing(
    corpus: list[str], tmp_path: Path, any_server: Server
) -> None:
    """The task failed after it had committed documents that it had not written.

    During its second run, the server is away for a second.
    """
    with running(any_server.binary, *KEPT) as server:
        with pytest.raises(OSError, match="the node is gone"):
            pipeline(tmp_path, server.url, Dies(tmp_path / "died", 150)).run()
        assert set(written(tmp_path)) < set(corpus)
        before = calls(server)
        with restarting(server, lambda: calls(server) > before + 5):
            pipeline(tmp_path, server.url).run()
    assert written(tmp_path) == dict.fromkeys(corpus, 1)


def test_a_task_that_has_ended_may_run_again(corpus: list[str], tmp_path: Path, any_server: Server) -> None:
    """The output of the second run is the same."""
    pipeline(tmp_path, any_server.url).run()
    before = {path.name: path.read_text() for path in (tmp_path / "out").iterdir()}
    (tmp_path / "logs" / "completions" / "00005").unlink()
    pipeline(tmp_path, any_server.url).run()
    assert {path.name: path.read_text() for path in (tmp_path / "out").iterdir()} == before


def kept(step: SeenFilter, texts: list[str], rank: int) -> list[str]:
    """Return the texts that a task keeps."""
    documents = [Document(text=text, id=str(i)) for i, text in enumerate(texts)]
    return [document.text for document in step.run(documents, rank)]


@pytest.mark.parametrize("verb", ["add_many", "commit_many"])
@pytest.mark.parametrize("seconds", [-3600.0, 0.0, 3600.0])
def test_a_task_may_be_killed_between_any_two_calls(
    any_client: redis.Redis, monkeypatch: pytest.MonkeyPatch, verb: str, seconds: float
) -> None:
    """Other tasks leave the documents of a killed task to its next run, whatever the clock there says."""
    seen = BloomFilter(any_client, "corpus", **SIZE)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(seen, verb, killed)
    with pytest.raises(KeyboardInterrupt):
        kept(SeenFilter(seen, job="job"), ["a", "b"], rank=1)
    monkeypatch.undo()
    monkeypatch.setattr(time, "time", partial(lambda clock: clock() + seconds, time.time))
    assert kept(SeenFilter(seen, job="job"), ["b", "c"], rank=2) == ["c"]
    again = BloomFilter.open(any_client, "corpus")
    assert kept(SeenFilter(again, job="job"), ["a", "b"], rank=1) == ["a", "b"]
    assert kept(SeenFilter(seen, job="job"), ["b", "c"], rank=2) == ["c"]


def test_repeats_within_a_task_are_dropped(any_client: redis.Redis) -> None:
    """In a batch and in later batches, and also in a rerun."""
    step = SeenFilter(BloomFilter(any_client, "corpus", **SIZE), job="job", batch_size=2)
    for _ in range(2):
        assert kept(step, ["a", "a", "b", "a", "c", "b"], rank=0) == ["a", "b", "c"]


def test_another_job_has_seen_it(any_client: redis.Redis) -> None:
    """Although the other job has tasks of the same ranks."""
    seen = BloomFilter(any_client, "corpus", **SIZE)
    assert kept(SeenFilter(seen, job="may"), ["a", "b"], rank=0) == ["a", "b"]
    assert kept(SeenFilter(seen, job="june"), ["b", "c"], rank=0) == ["c"]


def test_documents_are_compared_by_their_key(any_client: redis.Redis) -> None:
    """`key` returns it."""
    step = SeenFilter(BloomFilter(any_client, "corpus", **SIZE), job="job", key=lambda doc: doc.text.lower())
    assert kept(step, ["a", "A", "b"], rank=0) == ["a", "b"]


def test_the_page_runs(any_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples of the page run in an empty directory."""
    monkeypatch.chdir(tmp_path)
    pages.run("datatrove", any_server)
