"""A private cluster on loopback: started, resharded, failed over, ended by its own process ids."""

from __future__ import annotations

import random
import signal
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from redis.cluster import ClusterNode
from redis.crc import key_slot

from tests.support import waiting
from tests.support.servers import Server, binaries

SLOTS = 16384
SERVERS = [name for name in ("redis-6.2", "redis-8", "valkey-9") if name in binaries()]
"""The servers whose clusters are tested."""

NODE_TIMEOUT = 1500
"""Milliseconds after which a silent node is suspected: short, and long enough for a busy machine."""

OPTIONS = (
    *("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"),
    *("--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT)),
    *("--cluster-replica-validity-factor", "0", "--cluster-migration-barrier", "10"),
    *("--repl-ping-replica-period", "1"),  # Redis 8 does not list a replica before its first ping
)


def wait_until(what: str, condition: Callable[[], object]) -> None:
    """Poll a condition; a node that does not answer counts as false."""

    def holds() -> object:
        with suppress(redis.ConnectionError, redis.ResponseError):
            return condition()
        return False

    waiting.wait_until(what, holds, every=0.02)


@contextmanager
def ports(count: int) -> Iterator[list[int]]:
    """Reserve ports whose cluster bus ports, 10,000 above, are free too.

    They are below the range for outgoing connections.
    """
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            port = random.SystemRandom().randrange(10_000, 22_000)
            with suppress(OSError), ExitStack() as both:
                for number in (port, port + 10_000):
                    both.enter_context(socket.create_server(("127.0.0.1", number)))
                stack.push(both.pop_all())
                found.append(port)
        yield found


@dataclass
class Node:
    """A node of the cluster."""

    server: Server
    port: int
    id: str = ""

    def client(self) -> redis.Redis:
        return self.server.client()

    def ask(self, *command: Any) -> Any:
        with self.client() as client:
            return client.execute_command(*command)

    def info(self, section: str) -> dict[str, Any]:
        with self.client() as client:
            return dict(client.info(section))

    @property
    def is_up(self) -> bool:
        return self.server.process is not None

    @property
    def is_primary(self) -> bool:
        return self.is_up and self.info("replication")["role"] == "master"

    def calls(self, command: str) -> int:
        """Return how often the node has executed a command."""
        stats = self.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})
        return int(stats["calls"])


class Cluster:
    """Primaries and as many replicas."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)

    # -- state

    def client(self, **options: Any) -> Any:
        """Return a cluster client; an asyncio client is made with `at`."""
        startup = [ClusterNode("127.0.0.1", node.port) for node in self.nodes if node.is_up]  # type: ignore[no-untyped-call]  # redis-py has it so
        return redis.RedisCluster(startup_nodes=startup, **options)

    @property
    def at(self) -> dict[str, Any]:
        """Return the address of the cluster for any client."""
        return {"host": "127.0.0.1", "port": next(node.port for node in self.nodes if node.is_up)}

    def primaries(self) -> list[Node]:
        """Return the running primaries that serve slots or could."""
        return [node for node in self.nodes if node.is_primary]

    def replicas_of(self, primary: Node) -> list[Node]:
        """Return the running replicas of a primary."""
        others = (node for node in self.nodes if node.is_up and node is not primary)
        return [
            node
            for node in others
            if (said := node.info("replication"))["role"] == "slave" and said["master_port"] == primary.port
        ]

    def primary_of(self, key: bytes | str | int) -> Node:
        """Return the primary that serves a key or a slot."""
        slot = key if isinstance(key, int) else key_slot(key if isinstance(key, bytes) else key.encode())
        for node in self.primaries():  # each knows best what it serves; the others learn it later
            for first, last, (_, port, *_), *_ in node.ask("CLUSTER", "SLOTS"):
                if first <= slot <= last and port == node.port:
                    return node
        raise AssertionError(f"nobody serves slot {slot}")

    def nodes_up(self) -> list[Node]:
        return [node for node in self.nodes if node.is_up]

    # -- changes

    def form(self, replicas: int) -> None:
        """Make a cluster of the nodes; the last ones are replicas of the first."""
        first, primaries = self.nodes[0], self.nodes[: len(self.nodes) - replicas]
        for number, node in enumerate(self.nodes):
            node.id = _text(node.ask("CLUSTER", "MYID"))
            node.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            if number:
                first.ask("CLUSTER", "MEET", "127.0.0.1", node.port)
        share = -(-SLOTS // len(primaries))
        for number, node in enumerate(primaries):
            node.ask("CLUSTER", "ADDSLOTS", *range(SLOTS)[number * share : (number + 1) * share])
        for number, node in enumerate(self.nodes[len(primaries) :]):
            primary = primaries[number]
            wait_until("a replica knows its primary", lambda: _replicate(node, primary))  # noqa: B023 - at once
        self.wait_until_ok()

    def wait_until_ok(self) -> None:
        """Wait until every node agrees on all slots, and every running replica is linked and online."""
        wait_until("every node says ok", lambda: all(map(self._says_ok, self.nodes_up())))
        wait_until("the nodes agree", lambda: len({self._map(node) for node in self.nodes_up()}) == 1)
        wait_until("no node is taken for dead", lambda: all(map(self._sees_all, self.nodes_up())))
        wait_until("every replica is online", lambda: all(map(self._is_linked, self.nodes_up())))

    def _says_ok(self, node: Node) -> bool:
        said = node.ask("CLUSTER INFO")
        return bool(said["cluster_state"] == "ok" and int(said["cluster_known_nodes"]) == len(self.nodes))

    @staticmethod
    def _map(node: Node) -> str:
        slots = node.ask("CLUSTER", "SLOTS")
        return repr(sorted((a, b, p[1], sorted(r[1] for r in rest)) for a, b, p, *rest in slots))

    def _sees_all(self, node: Node) -> bool:
        seen = {port for _, _, *places in node.ask("CLUSTER", "SLOTS") for _, port, *_ in places}
        return all(other.port in seen for other in self.nodes_up())

    def _is_linked(self, node: Node) -> bool:
        said = node.info("replication")
        if said["role"] == "slave":
            return bool(said["master_link_status"] == "up")
        online = [said[f"slave{i}"]["state"] == "online" for i in range(said["connected_slaves"])]
        return all(online) and len(online) == len(self.replicas_of(node))

    def wait_until_replicated(self, primary: Node) -> None:
        """Wait until the replicas of a primary have its present data."""
        written = primary.info("replication")["master_repl_offset"]
        wait_until(
            "the replicas have caught up",
            lambda: all(
                node.info("replication")["slave_repl_offset"] >= written for node in self.replicas_of(primary)
            ),
        )

    def migrate(
        self,
        where: bytes | str | int,
        to: Node,
        *,
        dwell: Callable[[], object] = lambda: None,
        ahead: Callable[[list[bytes]], list[bytes]] = lambda keys: keys[: len(keys) // 2],
    ) -> None:
        """Migrate a slot to another primary, key by key.

        :param dwell: called when the keys that `ahead` chooses have been moved, and the others have not.
        """
        slot = where if isinstance(where, int) else key_slot(_bytes(where))
        source = self.primary_of(slot)
        if source is to:
            return
        to.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", to.id)
        self._move(source, to, ahead(source.ask("CLUSTER", "GETKEYSINSLOT", slot, SLOTS)))
        try:
            dwell()
        finally:
            while keys := source.ask("CLUSTER", "GETKEYSINSLOT", slot, SLOTS):
                self._move(source, to, keys)
            # Moved keys are on the new primary alone until its replica has them. No administrator waits for
            # that, but a test that kills the new primary must.
            self.wait_until_replicated(to)
            for node in (to, source, *(node for node in self.primaries() if node not in (to, source))):
                node.ask("CLUSTER", "SETSLOT", slot, "NODE", to.id)

    @staticmethod
    def _move(source: Node, to: Node, keys: list[bytes]) -> None:
        """Move keys once the target no longer reports that the cluster is down."""

        def is_done() -> bool:
            try:
                source.ask("MIGRATE", "127.0.0.1", to.port, "", 0, 20_000, "KEYS", *keys)
            except redis.ResponseError as error:
                if "CLUSTERDOWN" not in str(error):
                    raise
                return False
            return True

        if keys:
            wait_until("the target takes keys", is_done)

    def fail_over(self, primary: Node) -> Node:
        """Let a replica of a primary take over by a manual failover; return it."""
        (replica,) = self.replicas_of(primary)
        replica.ask("CLUSTER", "FAILOVER")
        wait_until("the replica takes over", lambda: replica.is_primary and not primary.is_primary)
        self.wait_until_ok()
        return replica

    def kill(self, primary: Node) -> Node:
        """Kill a primary, and wait until its replica has been promoted; return the replica."""
        (replica,) = self.replicas_of(primary)
        primary.server.stop(signal.SIGKILL)
        wait_until("the replica is promoted", lambda: replica.is_primary)
        wait_until("every node says ok", lambda: all(map(self._says_ok, self.nodes_up())))
        return replica

    def bring_back(self, node: Node) -> None:
        """Restart a killed node as a replica of the node that took over."""
        node.server.start()
        wait_until("the node is a replica", lambda: not node.is_primary)
        self.wait_until_ok()


def _replicate(node: Node, primary: Node) -> bool:
    node.ask("CLUSTER", "REPLICATE", primary.id)
    return True


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _bytes(value: bytes | str) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


@contextmanager
def cluster(binary: str, primaries: int = 3, replicas: int = 3) -> Iterator[Cluster]:
    """Start a cluster in temporary directories, and end it afterwards."""
    with ExitStack() as stack:
        with ports(primaries + replicas) as found:
            chosen = list(found)
        nodes = []
        for port in chosen:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="bloomredis-"))
            server = Server(binary, Path(directory), ("--port", str(port), *OPTIONS))
            stack.callback(server.stop, signal.SIGKILL)
            server.start()
            nodes.append(Node(server, port))
        made = Cluster(nodes)
        made.form(replicas)
        yield made
