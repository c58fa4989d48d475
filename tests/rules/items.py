"""The rule of items: what an answer says about an item must have been true at some time during the call."""

from __future__ import annotations

from typing import Final, Literal

_SAYS: Final[dict[tuple[str, object], tuple[Literal["in", "out", "either"], str]]] = {
    ("add", False): ("in", "not there"),
    ("add", True): ("either", ""),  # it may be the answer to an earlier call of the object
    ("update", None): ("in", "not loaded"),
    ("contains", True): ("in", "false positive"),
    ("contains", False): ("out", "false negative"),
    ("remove", True): ("either", ""),  # as above
    ("remove", False): ("out", "not removed"),
    ("claim", "done"): ("in", "not done"),
    ("claim", "claimed"): ("either", ""),  # as above
    ("claim", "busy"): ("either", ""),
    ("commit", None): ("in", "not committed"),
    ("commit", "done"): ("in", "not committed"),
}
"""Where the item must have been, by verb and answer, and the name of the rule that is broken otherwise."""


def contradiction(verb: str, answer: object, *, may_be_in: bool = True, may_be_out: bool = True) -> str:
    """Return the rule that an answer breaks, or "".

    :param may_be_in: the item may have been in the filter at some time during the call.
    :param may_be_out: the item may have been absent at some time during the call.
    """
    place, rule = _SAYS[verb, answer]
    return "" if {"in": may_be_in, "out": may_be_out, "either": True}[place] else rule
