"""Explanations of errors of servers and clients, whose texts say what happened but not what to do."""

from __future__ import annotations

from typing import Final, NamedTuple

AGAIN: Final = "repeat the call, which does no harm"
AGAIN_ON_COMMAND_LINE: Final = "run the command again"


class WayOut(NamedTuple):
    """The way out in a program, and on the command line.

    :ivar transient: a later call may succeed.
    """

    advice: str
    command: str
    transient: bool = True


class Explanation(NamedTuple):
    """The meaning of a refusal, and the ways out; that on the command line is None if it is the same."""

    meaning: str
    advice: str
    command: str | None = None


REFUSALS: Final = {
    "OOM": Explanation(
        "it is out of memory (maxmemory)",
        "raise maxmemory, free memory, or use a smaller filter; a ScalingBloomFilter begins small",
        "raise maxmemory, free memory, or use a smaller filter; --kind scaling begins small",
    ),
    "READONLY": Explanation(
        "it is a read-only replica",
        "connect to the primary (after a failover, reconnect)",
        "give the --url of the primary",
    ),
    "NOPERM": Explanation(
        "the ACL rule of the user lacks a permission",
        "run `bloomredis doctor --trial --yes`, which tries each call",
    ),
    "NOAUTH": Explanation(
        "it requires a valid user name and password",
        "give the client the right ones, or put them into its URL",
        "put the right ones into --url, as in redis://user:password@host",
    ),
    "MISCONF": Explanation(
        "it cannot save its data to disk and refuses writes", "see its log, and free disk space"
    ),
    "NOREPLICAS": Explanation(
        "it has fewer replicas than its min-replicas-to-write", "bring the replicas back"
    ),
    "LOADING": Explanation("it is loading its data after a start", "try again in a moment"),
    "BUSY": Explanation("another client's script has run for too long", "wait, or end it with SCRIPT KILL"),
    "CLUSTERDOWN": Explanation(
        "the cluster does not serve this slot", "wait for its failover, and check its nodes"
    ),
    "MASTERDOWN": Explanation(
        "it is a replica that has lost its primary",
        "wait, or connect to the primary",
        "wait, or give the --url of the primary",
    ),
    "TRYAGAIN": Explanation(
        "the slot of the filter is migrating, and its keys are on two nodes",
        "let the migration end (CLUSTER SETSLOT), then try again",
    ),
    "MOVED": Explanation(
        "another node of the cluster serves this slot",
        "use a cluster client, or a URL with redis+cluster://; if the client is one, check whether the nodes "
        "agree",
        "give --cluster and the URL of a node by its host and port; if they were given, check whether the "
        "nodes agree",
    ),
    "ASK": Explanation(
        "the slot of the filter is migrating to another node",
        "use a cluster client, or let the migration end",
        "let the migration end, or give --cluster",
    ),
    "proto-max-bulk-len": Explanation(
        "it no longer allows strings as long as the filter",
        "set proto-max-bulk-len to the filter's size or more, or use a ShardedBloomFilter, whose strings are "
        "shorter",
        "set proto-max-bulk-len to the filter's size or more, or use --kind sharded, whose strings are "
        "shorter",
    ),
    "CROSSSLOT": Explanation(
        "the name puts the filter's keys into different slots", "use a name without '}'"
    ),
}
"""The refusals by a server, by their word."""

FAILURES: Final = {
    "CERTIFICATE_VERIFY_FAILED": WayOut(
        "name the authority that signed the certificate, as in ssl_ca_certs='/etc/ssl/ca.pem'",
        "name the authority that signed the certificate, as in "
        "rediss://host:6379?ssl_ca_certs=/etc/ssl/ca.pem",
    ),
    "AuthenticationError": WayOut(
        "give the Sentinels' password in sentinel_kwargs, or as sentinel_password= in the URL",
        "?sentinel_password= in --url is for the password of the Sentinels",
    ),
    "No master found": WayOut(
        "check the name of the primary, and whether the Sentinels answer",
        "check the name in --url, and whether the Sentinels answer at its hosts and ports",
    ),
    "Cluster mode is not enabled": WayOut(
        "use a URL with redis:// for a single server",
        "use a --url with redis:// for a single server",
        transient=False,
    ),
    **dict.fromkeys(
        ("File exists", "Not a directory", "Permission denied", "Read-only file system"),
        WayOut(
            "give embedded:// a directory, or unix:// the socket of a server, that this user may use",
            "give embedded:// a directory, or unix:// the socket of a server, that this user may use",
            transient=False,
        ),
    ),
    "connecting to /": WayOut(
        "start the server, or give the path of its unix socket",
        "for a server on a unix socket, --url gives its path, as in unix:///run/redis.sock",
    ),
    **dict.fromkeys(
        ("Connection refused", "Connect call failed"),
        WayOut(
            "start the server, or give the client its host and port",
            "is a server running there? --url has its host and port, as in redis://host:6379",
        ),
    ),
    **dict.fromkeys(
        ("Name or service not known", "nodename nor servname", "Temporary failure in name resolution"),
        WayOut("correct the host name, which no machine has", "no machine has the host name of --url"),
    ),
    **dict.fromkeys(
        (
            "Timeout connecting",
            "timed out",
            "Connection reset",
            "Connection closed by server",
            "wrong version number",
            "record layer failure",
        ),
        WayOut(
            "if it never answers, check host, port and TLS: rediss:// is for ports with TLS, redis:// for "
            "those without",
            "if it never answers, check --url: rediss:// is for ports with TLS, redis:// for those without",
        ),
    ),
    "Too many connections": WayOut(
        "give the client's pool more connections (max_connections), use fewer threads, or give the client a "
        "BlockingConnectionPool, which waits for a free connection",
        AGAIN_ON_COMMAND_LINE,
    ),
    "No connection available.": WayOut(
        "give the client's BlockingConnectionPool more connections (max_connections) or a longer timeout, or "
        "use fewer threads",
        AGAIN_ON_COMMAND_LINE,
    ),
}
"""The ways out of failures to reach a server, by a part of the client's text."""
