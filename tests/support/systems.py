"""Other systems, represented by the commands that they send to Redis.

A stand-in sends the system's commands; it takes the bits from the vectors, which were made by running the
system.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bloomredis import compat
from tests.support.vectors import element, vectors

Offsets = list[int]
SET = "for _, offset in ipairs(ARGV) do redis.call('setbit', KEYS[1], offset, 1) end"
GET = """
for _, offset in ipairs(ARGV) do
  if tonumber(redis.call('getbit', KEYS[1], offset)) == 0 then return false end
end
return true
"""
CHECK = """
local size = redis.call('hget', KEYS[1], 'size')
local hashIterations = redis.call('hget', KEYS[1], 'hashIterations')
assert(size == ARGV[1] and hashIterations == ARGV[2], 'Bloom filter config has been changed')
"""


class InLua:
    """go-zero and the RedisTemplate filter: one script with an argument for each offset."""

    def __init__(self, key: str) -> None:
        self.key = key

    def put(self, client: Any, offsets: Offsets) -> None:
        client.eval(SET, 1, self.key, *offsets)

    def has(self, client: Any, offsets: Offsets) -> bool:
        return bool(client.eval(GET, 1, self.key, *offsets))


class InPipeline:
    """The Java class over Jedis and the PHP class: a SETBIT for each offset in a pipeline."""

    def __init__(self, key: str, ttl: int = 0) -> None:
        self.key = key
        self.ttl = ttl

    def put(self, client: Any, offsets: Offsets) -> None:
        pipe = client.pipeline(transaction=False)
        for offset in offsets:
            pipe.setbit(self.key, offset, 1)
        if self.ttl:
            pipe.expire(self.key, self.ttl)
        pipe.execute()

    def has(self, client: Any, offsets: Offsets) -> bool:
        pipe = client.pipeline(transaction=False)
        for offset in offsets:
            pipe.getbit(self.key, offset)
        return all(pipe.execute())


class LikeRedisson(InPipeline):
    """Redisson: its config is checked in the same batch."""

    def __init__(self, key: str, config: dict[str, str]) -> None:
        super().__init__(key)
        self.config = config

    def put(self, client: Any, offsets: Offsets) -> None:
        name = f"{{{self.key}}}:config"
        if not client.exists(name):
            client.hset(name, mapping=self.config)
        client.eval(CHECK, 1, name, self.config["size"], self.config["hashIterations"])
        super().put(client, offsets)

    def has(self, client: Any, offsets: Offsets) -> bool:
        name = f"{{{self.key}}}:config"
        client.eval(CHECK, 1, name, self.config["size"], self.config["hashIterations"])
        return super().has(client, offsets)


@dataclass
class System:
    """A system: its vectors, the parameters of those in use, our layout, and its stand-in."""

    vectors: str
    parameters: dict[str, Any]
    layout: Callable[[], Any]
    stand_in: Any

    def cases(self) -> list[tuple[Any, Offsets]]:
        found = [
            (element(case), case["offsets"])
            for case in vectors(self.vectors)["cases"]
            if all(case[field] == value for field, value in self.parameters.items())
        ]
        assert len(found) > 20
        return found


JAVA = {"capacity": 10_000, "error_rate": 0.001}
SYSTEMS = {
    "go_zero": System("go_zero", {"num_bits": 60_000_000}, lambda: compat.go_zero(60_000_000), InLua("seen")),
    "jedis": System("jedis", JAVA, lambda: compat.jedis(10_000, 0.001), InPipeline("bf:seen", ttl=1000)),
    "redis_template": System(
        "redis_template", JAVA, lambda: compat.redis_template(10_000, 0.001), InLua("seen")
    ),
    "php_bkdr": System(
        "php_bkdr", {"num_bits": 35_000_000}, lambda: compat.php_bkdr(35_000_000, 16), InPipeline("seen")
    ),
    "redisson": System(
        "redisson",
        {"capacity": 3000, "error_rate": 0.03},
        lambda: compat.redisson(3000, 0.03),
        LikeRedisson(
            "seen",
            {
                "size": "21895",
                "hashIterations": "5",
                "expectedInsertions": "3000",
                "falseProbability": "0.03",
            },
        ),
    ),
}
