"""The scripts before they were made of pieces, and calls of both on two equal databases."""

from __future__ import annotations

import json
import lzma
import random
import re
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, Final

import redis
from mmh3 import hash_bytes

from bloomredis import (
    BloomError,
    BloomFilter,
    CountingBloomFilter,
    RotatingBloomFilter,
    ScalingBloomFilter,
    ShardedBloomFilter,
    compat,
)
from bloomredis.bits.blocked import Blocked
from bloomredis.protocol import scripts
from bloomredis.protocol.keys import auxiliary_prefix
from bloomredis.stored import header, planning
from bloomredis.stored.foreign.bitmap import description
from bloomredis.stored.state.handle import Handle
from tests.support.inside import inside
from tests.support.vectors import VECTORS
from tests.support.waiting import wait_until

_SMALL: Final[dict[str, Any]] = {"capacity": 500, "error_rate": 0.01}
_FEW: Final[dict[str, Any]] = {"capacity": 20, "error_rate": 0.01}
_WINDOW_MS: Final = 400


def _renewed(chain: Any) -> Any:
    """Let each insert renew the time to live of a chain, which the scripts can do, and no layout asks for."""
    stored = inside(chain).stored
    stored._identity = description(stored._layout, 500_000, renews=True)
    return chain


KINDS: Final[dict[str, Callable[[redis.Redis], Any]]] = {
    "blocked": lambda c: BloomFilter(c, "f", **_SMALL, layout="blocked"),
    "small blocks": lambda c: BloomFilter(c, "f", capacity=100_000, error_rate=0.05, layout="blocked"),
    "several blocks": lambda c: BloomFilter(c, "f", capacity=500, error_rate=1e-6, layout="blocked"),
    "classic": lambda c: BloomFilter(c, "f", **_SMALL, layout="classic"),
    "counting": lambda c: CountingBloomFilter(c, "f", **_SMALL),
    "shard": lambda c: ShardedBloomFilter(c, "f", capacity=5000, error_rate=0.01, shards=2),
    "classic shard": lambda c: ShardedBloomFilter(
        c, "f", capacity=5000, error_rate=0.01, shards=2, layout="classic"
    ),
    "cut blocks": lambda c: BloomFilter(c, "f", **_SMALL, layout="blocked"),
    "cut classic": lambda c: BloomFilter(c, "f", **_SMALL, layout="classic"),
    "scaling": lambda c: ScalingBloomFilter(c, "f", **_FEW),
    "scaling classic": lambda c: ScalingBloomFilter(c, "f", **_FEW, layout="classic"),
    "rotating": lambda c: RotatingBloomFilter(c, "f", capacity=60, error_rate=0.01, window=3600),
    "rotating, short": lambda c: RotatingBloomFilter(c, "f", capacity=60, error_rate=0.01, window=300),
    "ended": lambda c: RotatingBloomFilter(c, "f", capacity=60, error_rate=0.01, window=_WINDOW_MS / 1000),
    "jedis": lambda c: BloomFilter(c, "f", layout=compat.jedis(1000, 0.01)),
    "renewed": lambda c: BloomFilter(c, "f", layout=compat.jedis(1000, 0.01, insert_ttl=500)),
    "redisson": lambda c: BloomFilter(c, "f", layout=compat.redisson(1000, 0.01)),
    "chain": lambda c: BloomFilter(c, "f", layout=compat.redis_bitmaps(30, 0.01)),
    "renewed chain": lambda c: _renewed(BloomFilter(c, "f", layout=compat.redis_bitmaps(30, 0.01))),
    "module": lambda c: BloomFilter(c, "f", **_SMALL, layout="module"),
}
"""Filters, by the names of what their calls have in common."""

_VERBS: Final = ("add", "add", "contains", "claim", "commit", "claim", "commit", "add_count", "or_segment")
_ITEMS: Final = [b"%d" % i for i in range(90)]
_OF_SEGMENTS: Final = (("one", "blocks"), ("one", "bits"), ("layers", "blocks"))
_GROWN: Final = ("refused: BLOOMSTALE", "refused: BLOOMFULL", "refused: BLOOMCHANGED")
_REFUSAL: Final = re.compile(r"BLOOM[A-Z]+|[A-Z]+")

State = dict[bytes, tuple[object, int]]
"""Each key with its value and its time to live in ms."""


@cache
def _generic_texts() -> dict[str, str]:
    found: dict[str, str] = json.loads(lzma.decompress((VECTORS / "generic_scripts.json.xz").read_bytes()))
    return found


def generic(verb: str, variant: scripts.Variant, keys: int) -> str:
    """Return the earlier text of a script."""
    texts, store = _generic_texts(), variant[0]
    if variant == ("one", "blocks") and verb in ("add", "contains") and keys < 3:
        return texts[f"{verb} blocks"]
    name = {"module": "module", "layers": "layers", "bitmaps": "layers"}.get(store, "one")
    return texts[f"{verb} {name}"]


_ALL_KEYS: Final = """
local found = {}
for i, key in ipairs(redis.call('KEYS', '*')) do
  local is_string = redis.call('TYPE', key).ok == 'string' and ARGV[1] == 'values'
  found[i] = {key, redis.call(is_string and 'GET' or 'DUMP', key), redis.call('PTTL', key)}
end
return found
"""


def _every_key(client: redis.Redis, what: str) -> list[tuple[bytes, Any, int]]:
    """Return each key with its value or its dump, and its time to live in ms; in one round trip."""
    found: Any = client.eval(_ALL_KEYS, 0, what)
    return [(key, value, left) for key, value, left in found if value is not None]


def state_of(client: redis.Redis) -> State:
    """Return all keys; of a receipt only what counts, and of a hash or another type what DUMP says."""
    found: State = {}
    for key, value, left in _every_key(client, "values"):
        counts = value.partition(b";")[0] if b":receipt:" in key else value
        found[key] = counts, left
    return found


class Pair:
    """A filter in two equal databases, one for each form of the scripts.

    :ivar outcomes: how often the earlier scripts replied, or refused with which word.
    :ivar differences: what differed, with the call.
    """

    def __init__(self, client: redis.Redis, kind: str, seed: int) -> None:
        self._random = random.Random(f"{kind} {seed}")
        self._kind = kind
        pool = client.connection_pool
        other = redis.ConnectionPool(
            connection_class=pool.connection_class, **{**pool.connection_kwargs, "db": 1}
        )
        self._old, self._new = client, redis.Redis(connection_pool=other)
        client.flushall()
        self._filter = KINDS[kind](client)
        self._handle: Any = self._made()
        whole: scripts.Variant = self._handle.script_variant
        self._variant = tuple(folder for folder in whole if folder != scripts.CAPPED)
        self._is_layered = "layers" in whole
        self._copy()
        self._prefix = auxiliary_prefix(self._handle.key)
        self._sessions: list[list[Any]] = [[self._prefix + b"receipt:s%d" % i, 0] for i in range(3)]
        self.outcomes: Counter[str] = Counter()
        self.differences: list[str] = []

    def close(self) -> None:
        """Close the connection to the second database."""
        self._new.close()

    def _made(self) -> Any:
        """Put the filter into the state that its name says; return its handle."""
        client, f = self._old, self._filter
        if self._kind.endswith("shard"):
            f.create()
            return self._shard()
        f.add_many(_ITEMS[:40])
        f.add_many(_ITEMS[:50])
        handle = inside(f).stored.handle
        if self._kind.startswith("cut"):
            stored: Any = client.get("f")
            client.set("f", stored[:-100])
        if self._kind == "ended":
            f.claim("kept", lease=1000)  # the record outlives the layers
            wait_until("the layers have ended", lambda: self._is_ended(handle))
        return handle

    def _shard(self) -> Handle:
        """Return a shard whose bits have not been created."""
        key = min(self._old.scan_iter("{f:*"))
        stored: Any = self._old.getrange(key, 0, 63)
        head = header.parse(stored)
        layout: Any = planning.stored(head)
        variant = ("one", "blocks" if isinstance(layout, Blocked) else "bits")
        return Handle(head.identity, layout, 100, key, (), head.generation, 0, variant)

    def _is_ended(self, handle: Any) -> bool:
        packed = handle.layout.pack_one(_ITEMS[0])
        tail = handle.tail((), (packed,))
        with suppress(redis.ResponseError):
            return bool(self._old.eval(generic("contains", handle.script_variant, 1), *tail) == 0)
        return False

    def _copy(self) -> None:
        """Let the second database equal the first."""
        with self._new.pipeline(transaction=False) as copying:
            copying.flushdb()
            for key, dump, left in _every_key(self._old, "dumps"):
                if left != 0:
                    copying.restore(key, max(0, left), dump)
            copying.execute()
        self._expired_before = self._expired()

    def _expired(self) -> int:
        """Return how many keys of the server have ended by their time to live; 0 of fakeredis."""
        with suppress(redis.ResponseError):
            stats: Any = self._old.info("stats")
            return int(stats["expired_keys"])
        return 0

    def call(self) -> None:
        """Make one call, perhaps a malformed one, with both forms of its script."""
        verb, keys, arguments = self._drawn()
        self._disturb(keys)
        before: State | None = None
        if self._random.random() < 0.25:
            keys, arguments = self._mutated(keys, arguments)
            before = state_of(self._new)
        own = len(keys) - len(self._handle.extra)
        texts = generic(verb, self._variant, own), scripts.load_script(verb, variant=self._variant).text
        known = arguments[:4] if verb == "claim" and arguments[4:] == [b""] else arguments  # it replaces none
        given = (self._old, known), (self._new, arguments)
        replies = [
            self._reply(client, text, keys, own_arguments)
            for (client, own_arguments), text in zip(given, texts, strict=True)
        ]
        self.outcomes[str(replies[0]) if str(replies[0]).startswith("refused") else verb] += 1
        states = state_of(self._old), state_of(self._new)
        if self._expired() != self._expired_before:
            self._copy()  # a key may have ended between the two calls
            return
        if before is not None and str(replies[1]).startswith("refused"):
            # The generic scripts read receipts, and blocked earlier calls, before they looked at the items.
            # Both may block an earlier call and refuse this one, and add an item before one that was cut off.
            same, states = True, states if not self._apart(*states) else (before, states[1])
            self._copy()
        else:
            same = self._agree(*replies)
        apart = self._apart(*states)
        if apart or not same:
            held = {key: [str(state.get(key))[-90:] for state in states] for key in apart}
            sizes = [len(each) if isinstance(each, bytes) and len(each) > 30 else each for each in arguments]
            malformed = "" if before is None else " malformed"
            self.differences.append(f"{self._kind}{malformed} {verb}: {replies} {held} {keys} {sizes}")
            self._copy()
        elif before is None and replies[0] in _GROWN and self._kind != "ended":
            self._continue()

    def _reply(self, client: redis.Redis, text: str, keys: list[bytes], arguments: list[Any]) -> Any:
        try:
            return client.eval(text, len(keys), *keys, *arguments)
        except redis.RedisError as error:
            found = _REFUSAL.match(str(error))
            return f"refused: {found[0] if found and found[0].startswith('BLOOM') else 'another error'}"

    def _continue(self) -> None:
        """Let the filter grow, and learn its state."""
        with suppress(BloomError):
            self._filter.add(hash_bytes(b"%d" % self._random.randrange(1 << 30)))
        self._handle = inside(self._filter).stored.handle or self._handle
        self._copy()

    def _agree(self, old: Any, new: Any) -> bool:
        if isinstance(old, bytes) and isinstance(new, bytes):  # the times that leases have left may differ
            return re.sub(rb" \d+", b" ", old) == re.sub(rb" \d+", b" ", new)
        return bool(old == new)

    def _apart(self, old: State, new: State) -> list[bytes]:
        return [key for key in old.keys() | new.keys() if not self._alike(key, old, new)]

    def _alike(self, key: bytes, old: State, new: State) -> bool:
        """Return whether both have a key with the same value, and nearly the same time to live."""
        (value, left), (other, other_left) = old.get(key, (None, 0)), new.get(key, (None, 0))
        if (value is None or other is None) and max(left, other_left) < 3500 and min(left, other_left) >= 0:
            return True  # it has just expired
        if (
            value != other
            and self._kind.endswith("shard")
            and isinstance(value, bytes)
            and isinstance(other, bytes)
        ):
            value, other = value.rstrip(b"\0"), other.rstrip(b"\0")  # a claim no longer creates the bits
        return value == other and (left < 0) == (other_left < 0) and abs(left - other_left) < 6000

    # -- calls

    def _drawn(self) -> tuple[str, list[bytes], list[Any]]:
        draw, handle = self._random, self._handle
        verb = draw.choice(_VERBS)
        if self._variant == ("one", "counters") and draw.random() < 0.2:
            verb = "remove"
        if handle.layout.__class__.__name__ == "ModuleItems":
            verb = draw.choice(["claim", "commit"])
        if verb == "or_segment" and self._variant not in (
            ("one", "blocks"),
            ("one", "bits"),
            ("layers", "blocks"),
        ):
            verb = "add"
        items = draw.sample(_ITEMS, draw.choice([1, 1, 1, 2, 5]))
        keys, arguments = getattr(self, f"_{'add' if verb == 'remove' else verb}")(items)
        return verb, [handle.key, *keys, *handle.extra], [handle.identity, *arguments]

    def _named(self) -> tuple[bytes, bytes]:
        """Return a receipt, and the name of a next call, a retry or a late copy."""
        session: Any = self._random.choice(self._sessions)
        number = max(1, session[1] + self._random.choice([1, 1, 1, 0, -1]))
        session[1] = max(session[1], number)
        return session[0], b"%d.%08x" % (number, self._random.choice([1, 1, 1, 2]))

    def _add(self, items: list[bytes]) -> tuple[list[bytes], list[Any]]:
        draw, packed = self._random, self._handle.layout.pack(items)
        if draw.random() < 0.2:
            return [], [packed]
        receipt, name = self._named()
        if draw.random() < 0.2:
            # The earlier scripts refused an index beyond the reply of a call to one string.
            late, index = (
                draw.choice(self._sessions),
                draw.choice([b"0", b"1", b"7"] if self._is_layered else [b"0"]),
            )
            own = late[0] + b"/%d/0" % draw.randrange(1 << 30)
            return [own, late[0]], [packed, b"1.0000000a", b"%d.00000001" % max(1, late[1]), index]
        return [receipt], [packed, name]

    def _contains(self, items: list[bytes]) -> tuple[list[bytes], list[Any]]:
        return [], [self._handle.layout.pack(items)]

    def _owners(self, items: list[bytes]) -> bytes:
        """Return owners, some of them of one holder."""
        return b"".join(
            b"a holder" + hash_bytes(item)[:8]
            if self._random.random() < 0.2
            else hash_bytes(item + self._random.choice([b"o", b"o", b"p"]))
            for item in items
        )

    def _claims(self, items: list[bytes]) -> list[bytes]:
        return [self._prefix + b"claim:" + hash_bytes(item).hex().encode() for item in items]

    def _claim(self, items: list[bytes]) -> tuple[list[bytes], list[Any]]:
        lease = self._random.choice([b"60000", b"120000"])
        replaced = [self._owners(items)] if self._random.random() < 0.2 else []
        return self._claims(items), [self._handle.layout.pack(items), lease, self._owners(items), *replaced]

    def _commit(self, items: list[bytes]) -> tuple[list[bytes], list[Any]]:
        keys, arguments = self._claims(items), [self._handle.layout.pack(items), self._owners(items)]
        if self._random.random() < 0.8:
            for number in self._random.sample(range(20), len(items)):
                keys.append(self._prefix + b"receipt:c%d" % number)
                arguments.append(b"%d.00000001" % self._random.randrange(1, 4))
        return keys, arguments

    def _add_count(self, _: list[bytes]) -> tuple[list[bytes], list[Any]]:
        receipt, name = self._named()
        count = self._random.choice([b"1", b"3", b"0", b"-1", b"1000000"])
        return ([receipt], [count, name]) if self._random.random() < 0.7 else ([], [count])

    def _or_segment(self, _: list[bytes]) -> tuple[list[bytes], list[Any]]:
        receipt, name = self._named()
        free, first = [b"{f}:old", b"{f}:new"], self._random.randrange(60)
        segment = self._random.choice([bytes(2), b"\1\2", b"\x80" * 9])
        if self._random.random() < 0.5:
            return free, [first, segment]
        return [*free, receipt], [first, segment, name]

    # -- disturbances

    def _disturb(self, keys: list[bytes]) -> None:
        """Give a claim another value, or a claim or receipt another type."""
        draw = self._random
        key = draw.choice(keys[1:] or [b""])
        what = draw.random()
        if what < 0.03 and (b":claim:" in key or b":receipt:" in key):
            for client in (self._old, self._new):
                client.delete(key)
                client.rpush(key, "x")
        elif what < 0.06 and b":claim:" in key:
            other = self._handle.generation + hash_bytes(b"other")
            value = draw.choice([other, other + b"-", bytes(24), b"x"])
            for client in (self._old, self._new):
                client.set(key, value, px=60_000)

    def _mutated(self, keys: list[bytes], arguments: list[Any]) -> tuple[list[bytes], list[Any]]:
        """Damage a call."""
        draw, keys, arguments = self._random, [*keys], [*arguments]
        # A fifth argument may be an index, which the earlier scripts refused beyond the reply (see `_add`).
        whole = self._is_layered or len(arguments) != 5
        what, at = draw.randrange(8), draw.randrange(len(arguments) if whole else 4)
        if what == 4:
            at = max(at, 1)  # the earlier scripts took each longer identity for that of a bitmap
        argument = arguments[at] if isinstance(arguments[at], bytes) else b""
        if what == 0:
            del keys[draw.randrange(len(keys)) :]
        elif what == 1:
            del arguments[at:]
        elif what == 2 and argument:
            byte = draw.randrange(len(argument))
            flipped = argument[byte] ^ (1 << draw.randrange(8))
            arguments[at] = argument[:byte] + bytes([flipped]) + argument[byte + 1 :]
        elif what == 3:
            arguments[at] = draw.choice([b"", b"x", b"0", b"-1", b"1.5", b"1e3", b"nan", bytes(56)])
        elif what == 4:
            arguments[at] = argument + draw.choice([b"\0", b"x", b"\xff" * 36])
        elif what == 5:
            draw.shuffle(keys)
        elif what == 6:
            keys.insert(draw.randrange(len(keys) + 1), b"extra")
        elif len(arguments) > 1 and isinstance(arguments[1], bytes):
            packed = arguments[1]
            arguments[1] = draw.choice([b"", packed * 2, packed[:-1], b"\xff" * len(packed), packed * 2000])
        return keys, arguments
