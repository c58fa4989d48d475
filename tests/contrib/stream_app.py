"""A FastStream application in a process of its own, which notes each item that it handles."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker

from bloomredis.asyncio import BloomFilter
from bloomredis.contrib.faststream import Once
from tests.contrib.consumer import GROUP, TOPIC, Work


async def body(message: Any) -> Any:
    """Return the body of a message."""
    return await message.decode()


async def main() -> None:
    """Handle messages until the end of the process."""
    brokers, socket, notes, hang_after = sys.argv[1:]
    work = Work(notes, int(hang_after))
    seen = BloomFilter.from_url(f"unix://{socket}", "done", capacity=100_000, error_rate=1e-9)
    # The brokers of librdkafka cannot create topics on request.
    once = Once(seen, key=body, lease=4.0)
    broker = KafkaBroker(brokers, allow_auto_create_topics=False, middlewares=[once], logger=None)
    times = {"session_timeout_ms": 3000, "heartbeat_interval_ms": 300}
    policy = AckPolicy.NACK_ON_ERROR

    @broker.subscriber(TOPIC, group_id=GROUP, auto_offset_reset="earliest", ack_policy=policy, **times)
    async def handle(item: int) -> None:
        work(b"%d" % item, is_first=True)

    await FastStream(broker).run()


if __name__ == "__main__":
    asyncio.run(main())
