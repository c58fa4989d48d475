"""The kinds of filters and their names on the command line."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """A kind of filter; `fixed` is `BloomFilter`, each other name begins the name of its class."""

    FIXED = "fixed"
    SCALING = "scaling"
    ROTATING = "rotating"
    SHARDED = "sharded"
    COUNTING = "counting"


CLASSES: Final = {
    Kind.FIXED: "BloomFilter",
    Kind.SCALING: "ScalingBloomFilter",
    Kind.ROTATING: "RotatingBloomFilter",
    Kind.SHARDED: "ShardedBloomFilter",
    Kind.COUNTING: "CountingBloomFilter",
}
