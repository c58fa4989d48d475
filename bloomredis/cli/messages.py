"""Messages of the library in the command line's language: options in place of parameters and calls."""

from __future__ import annotations

import re
from typing import Final

from bloomredis.cli.filters import CLASSES

_PHRASES: Final = {
    r"there is no filter ('.*'); give capacity and error_rate to create it": (
        r"there is no filter \1 on this server; bloomredis create makes one"
    ),
    r"open it with \w+\.open\(\), which takes what is stored, or use another name": (
        "leave the option out to take what is stored, or use another name"
    ),
    r"lower the capacity or allow a higher error_rate": (
        "lower the capacity, allow a higher error_rate, or spread the filter over several keys "
        "(--kind sharded)"
    ),
    r"capacity and error_rate go together; \w+ is missing": "--capacity and --error-rate go together",
    r"since this object first used it": "since the command first used it",
    r"Call (?:reserve\(\) to go on with what is there now, or )?clear\(\) to start empty": (
        "Run the command again to go on with what is there now"
    ),
    r"layout must be None, ('.*') or ('.*'), not": r"layout must be \1 or \2, not",
    r"use a cluster client; if it is one, check whether the nodes agree": (
        "give --cluster and the URL of a node by its host and port; if they were given, check whether the "
        "nodes agree"
    ),
    r"give them to the client, or put them into its URL": (
        "put the right ones into --url, as in redis://user:password@host"
    ),
    r"; (?:ask again with the token of this error|a second call [^.;]*)": "",
    r"\. Go on with \w+\(error\.rest\) once the reason is gone: nothing is lost": "",
    r"an option of the layout from bloomredis\.compat|its layout from bloomredis\.compat": "its --layout",
}
_PARAMETERS: Final = {
    # Not a plain word of a sentence: what a value follows, or what is told to give.
    r"(?<![-\w])error_rate\b": "--error-rate",
    r"(?<![-\w])capacity(?= (?:and --error-rate|must|is missing|\d|of --))": "--capacity",
    r"(?<![-\w])(window|slices|shards|expansion|layout|ttl)(?= must\b)": r"--\1",
}
_KINDS: Final = {rf"\b{name}\b": f"filter of --kind {kind}" for kind, name in CLASSES.items()}


def in_options(error: object) -> str:
    """Return an error's text as one line for somebody who knows options, not Python."""
    text = " ".join(str(error).split())
    for pattern, words in (_PHRASES | _PARAMETERS | _KINDS).items():
        text = re.sub(pattern, words, text)
    return text
