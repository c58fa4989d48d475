"""Standard input, output and error, opened if the program was started without them.

If a stream is closed, the next file or socket gets its descriptor.  Output to the stream then goes to that
file or socket: a server would read a line of output as a command.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_WRONLY, "w"), ("stderr", os.O_WRONLY, "w"))
"""Name, flags and mode of each standard stream, in the order of descriptors."""


def open_closed() -> set[str]:
    """Open each closed stream on the null device, for child processes too; return their names.

    Call it before anything else opens a file.
    """
    closed = set()
    for descriptor, (name, flags, mode) in enumerate(_STREAMS):
        # Python has no object for a stream that was closed when it started.
        if getattr(sys, name) is None or not _is_open(descriptor):
            # The lowest free descriptor is the stream's own, unless a start-up hook has taken it.
            null = os.open(os.devnull, flags)
            os.set_inheritable(null, True)
            setattr(sys, name, open(null, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - open until exit
            closed.add(name)
    return closed


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
