"""A program of greenlets that share calls: `python -m tests.support.greenlets SOCKET CASE`.

It prints each greenlet's answer as JSON, and the answer of a retry for its item.
"""

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - imports before the patching would not be patched
import sys  # noqa: E402
from typing import Any  # noqa: E402

import gevent  # noqa: E402

from bloomredis import BloomFilter  # noqa: E402
from tests.support.proxy import Held, Proxy, proxied  # noqa: E402
from tests.support.waiting import wait_until  # noqa: E402

ITEMS = "bcd"


class Scene:
    """One call is in flight; three greenlets wait to share the next."""

    def __init__(self, proxy: Proxy) -> None:
        self.filter = BloomFilter(
            proxy.client(retries=0), "seen", capacity=1000, error_rate=1e-9, coalesce=True
        )
        gevent.spawn(self.filter.add, "warm").get(timeout=10)
        self.answers: dict[str, Any] = {}
        self.first, self.second = Held(), Held()
        proxy.plan("add", self.first, self.second)
        self.greenlets = {"a": self._start("a")}
        wait_until("the first call is under way", self.first.reached.is_set)
        for item in ITEMS:
            self.greenlets[item] = self._start(item)
            wait_until("it waits", lambda: len(self.filter._adds._queue) == len(self.greenlets) - 1)

    def _start(self, item: str) -> Any:
        def work() -> None:
            try:
                self.answers[item] = self.filter.add(item)
            except BaseException as error:  # including gevent's own
                self.answers[item] = type(error).__name__

        return gevent.spawn(work)

    def time_out(self, item: str) -> None:
        """End the wait of a greenlet as `gevent.Timeout` does."""
        self.greenlets[item].kill(gevent.Timeout(), block=True, timeout=10)

    def queued(self) -> None:
        """End the first greenlet in the queue."""
        self.time_out("b")
        self.first.go.set()
        self.second.go.set()

    def sending(self) -> None:
        """End the greenlet that sends for the others, whose call was executed."""
        self.first.go.set()
        wait_until("the second call is under way", self.second.reached.is_set)
        self.time_out("b")
        self.second.go.set()

    def sent(self) -> None:
        """End a greenlet whose item is in flight in another's call."""
        self.first.go.set()
        wait_until("the second call is under way", self.second.reached.is_set)
        self.time_out("c")
        self.second.go.set()

    def report(self) -> dict[str, Any]:
        """Wait for all, then retry."""
        gevent.joinall(list(self.greenlets.values()), timeout=10)
        hanging = [item for item, each in self.greenlets.items() if not each.dead]
        later = gevent.spawn(self.filter.add, "later")
        later.join(timeout=10)
        again = {item: gevent.spawn(self.filter.add, item).get(timeout=10) for item in ITEMS if not hanging}
        return {"answers": self.answers, "hanging": hanging, "later": later.value, "again": again}


if __name__ == "__main__":
    with proxied(sys.argv[1]) as running:
        scene = Scene(running)
        getattr(scene, sys.argv[2])()
        print(json.dumps(scene.report()), flush=True)  # noqa: T201 - the program's output
