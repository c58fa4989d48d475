"""Large batches over several servers: an interruption loses no answer."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from bloomredis import BatchInterruptedError
from tests.support.dying import MortalClient
from tests.support.servers import Server, binaries, running
from tests.support.several import on_servers

ITEMS = 300_000


class Down(MortalClient):
    """A client whose server is unreachable while `down` is set."""

    down = False

    def __init__(self, client: redis.Redis) -> None:
        super().__init__(client, -1)

    def _live(self) -> None:
        if self.down:
            raise redis.ConnectionError("Connection refused.")


@pytest.mark.long
def test_a_server_that_is_away_during_a_large_batch(any_server: Server) -> None:
    """Every item of the batch is reported new once: in the error's answers, or on retry of the rest."""
    with running(binaries()["valkey-9"]) as second:
        away: Any = Down(second.client())
        f = on_servers([any_server.client(), away], num_bits=40_000_003)
        f.add_many([f"warm-{i}" for i in range(200)])
        away.down = True
        with pytest.raises(BatchInterruptedError) as caught:
            f.add_many([f"item-{i}" for i in range(ITEMS)])
        away.down = False
        told = [*caught.value.results, *f.add_many(caught.value.rest)]
        assert len(told) == ITEMS
        assert told.count(False) <= 3, "false positives; 0.3 are to be expected"
