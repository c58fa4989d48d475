"""Translation of the library's messages for the command line: options instead of parameters and calls."""

from __future__ import annotations

import logging
import re
from contextlib import suppress
from typing import Final

import typer

from bloomredis.cli.kinds import CLASSES

_PHRASES: Final = {
    r"there is no filter ('.*'); (?:give capacity and error_rate to create it|open\(\) .*)$": (
        r"there is no filter \1 on this server; bloomredis create makes one"
    ),
    r"open it with \w+\.open\(\), which takes what is stored, or use another name": (
        "leave the option out to take what is stored, or use another name"
    ),
    r": open it with \w+, or use another name": "; leave --kind out, or use another name",
    r"lower the capacity or allow a higher error_rate": (
        "lower the capacity, allow a higher error_rate, or spread the filter over several keys "
        "(--kind sharded)"
    ),
    r"capacity and error_rate go together; \w+ is missing": "--capacity and --error-rate go together",
    r" since this object first used it": "",
    r"Call reserve\(\) to go on with what is there now, or clear\(\) to start empty": (
        "`bloomredis reserve` continues with what is stored now, `bloomredis clear` starts empty"
    ),
    r"Call clear\(\) to start empty": "`bloomredis clear` starts empty",
    r"make the programs ScalingBloomFilter, then call ScalingBloomFilter\.adopt\(\)": (
        "run `bloomredis adopt`, and use --kind scaling"
    ),
    r"layout must be None, (.*), or for BloomFilter ('.*') or a layout of bloomredis\.compat, not": (
        r"layout must be \1 or \2, not"
    ),
    r"check the outcome: ScalingBloomFilter\.open\(\) succeeds if it was adopted": (
        "bloomredis info shows --kind scaling if it was adopted"
    ),
    r"No master found for ('.*?')$": r"no Sentinel of --url names a primary \1 that is up: check the name",
    r"No master found for ('.*?') : .*\b(\w+Error)\b.*$": (
        r"no Sentinel of --url names a primary \1 that is up (\2)"
    ),
    r"use a cluster client; if it is one, check whether the nodes agree": (
        "give --cluster and the URL of a node by its host and port; if they were given, check whether the "
        "nodes agree"
    ),
    r"give the client the right ones, or put them into its URL": (
        "put the right ones into --url, as in redis://user:password@host"
    ),
    r"; (?:ask again with the token of this error|a second call [^.;]*)": "",
    r"\. The call may have been executed before: [^.]*": "",
    r"\. Go on with \w+\(error\.rest\) once the reason is gone: nothing is lost": "",
    r"an option of the layout from bloomredis\.compat|its layout from bloomredis\.compat": "its --layout",
    r"give encode=[^.;]*": "the command cannot encode items, so it cannot add or check any",
}
_PARAMETERS: Final = {
    # Only before a value or in an instruction, since some parameters are plain words too.
    r"(?<![-\w])error_rate\b": "--error-rate",
    r"(?<![-\w])tightening_ratio\b": "--tightening-ratio",
    r"(?<![-\w])capacity(?= (?:and --error-rate|must|is missing|\d|of --))": "--capacity",
    r"(?<![-\w])grown_to\b": "--grown-to",
    r"(?<![-\w])(window|slices|shards|expansion|layout|ttl|nodes|kind)(?= (?:must|is for)\b|=)": r"--\1",
    r"(--\w+)='?(\w+)'?": r"\1 \2",
}
_KINDS: Final = {rf"\b{name}\b": f"filter of --kind {kind}" for kind, name in CLASSES.items()}
_CAUSES: Final = {
    # Texts of clients, and the advice that they lack.
    r"no Sentinel .*AuthenticationError": "?sentinel_password= in --url is for the password of the Sentinels",
    r"unknown command .SENTINEL": "--url names no Sentinel; for a server itself, give redis://host:6379",
    r"no Sentinel .*Error": "do the Sentinels answer? --url has their hosts and ports",
    r"Connection refused": "is a server running there? --url has its host and port, as in redis://host:6379",
    r"Name or service not known|nodename nor servname|Temporary failure in name resolution": (
        "no machine has the host name of --url"
    ),
    r"Timeout connecting|timed out|Connection reset|wrong version number|record layer failure": (
        "no server answers at --url in time; rediss:// is for ports with TLS, redis:// for those without"
    ),
    r"CERTIFICATE_VERIFY_FAILED": (
        "name the authority that signed the certificate, as in rediss://host:6379?ssl_ca_certs=/etc/ssl/ca.pem"
    ),
    r"No such file or directory\.": "for a server on a unix socket, --url gives its path, as in unix:///run/redis.sock",
}


def in_options(error: object) -> str:
    """Return an error's text as one line for somebody who knows options, not Python."""
    text = " ".join(_text(error).split())
    for pattern, words in (_PHRASES | _PARAMETERS | _KINDS).items():
        text = re.sub(pattern, words, text)
    cause = next((words for pattern, words in _CAUSES.items() if re.search(pattern, text)), None)
    return text if cause is None else f"{text.rstrip('.')}; {cause}"


def _text(error: object) -> str:
    """Return an error's text; for an error of the system, the file and the reason without the number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    note(f"warning: {text}")


def note(text: str) -> None:
    """Print a line on stderr, if it can be written."""
    with suppress(OSError, ValueError):
        typer.echo(f"bloomredis: {text}", err=True)


class Warnings(logging.Handler):
    """A logging handler that prints the library's log as warnings of the command."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        warn(in_options(record.getMessage()))


def print_warnings(*, but: str | None = None) -> None:
    """Print the library's warnings from now on.

    :param but: skip warnings that contain this text, since the command prints its own.
    """
    logger = logging.getLogger("bloomredis")
    logger.propagate = False
    logger.handlers = [each for each in logger.handlers if not isinstance(each, Warnings)]
    handler = Warnings(logging.WARNING)
    handler.addFilter(lambda record: but is None or but not in record.getMessage())
    logger.addHandler(handler)
