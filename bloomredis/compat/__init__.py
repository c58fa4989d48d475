"""Layouts of other systems, compatible bit for bit.

Each system has a module with its layout, its sizes and their rounding, and its keys.  Only `transfers` does
I/O.
"""

from bloomredis.compat.go_zero import go_zero
from bloomredis.compat.guava import guava
from bloomredis.compat.jedis import jedis
from bloomredis.compat.php_bkdr import php_bkdr, php_bkdr_shards
from bloomredis.compat.redis_bitmaps import redis_bitmaps
from bloomredis.compat.redis_template import redis_template
from bloomredis.compat.redisson import redisson
from bloomredis.compat.transfers import from_guava, from_redisbloom, to_guava

__all__ = [
    "from_guava",
    "from_redisbloom",
    "go_zero",
    "guava",
    "jedis",
    "php_bkdr",
    "php_bkdr_shards",
    "redis_bitmaps",
    "redis_template",
    "redisson",
    "to_guava",
]
