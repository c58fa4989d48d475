"""numpy, imported at its first use.

The import of numpy takes 12 MB, and as much time as the import of redis-py.  Calls with one item do not need
numpy.  The modules of this package import `np` and `NDArray` from here.  No module may use an attribute of
`np` while the module itself is being imported.  So a function with a cache returns each constant array, and
an alias of an array type is a string.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from threading import Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any

from bloomredis.later import imported

__all__ = ["NDArray", "np"]


def _attribute(name: str) -> Any:
    """Return an attribute of numpy, and store it in `np`, so that this function runs once for it."""
    value = getattr(_imported("numpy"), name)
    setattr(np, name, value)
    return value


def _imported(module: str) -> ModuleType:
    """Import numpy or a module of it; the first import of numpy runs in another thread.

    Ctrl-C or the time limit of a job queue may interrupt the caller.  The exception then does not reach the
    import: if it did, this process might never be able to import numpy again.
    """
    if "numpy" not in sys.modules:
        with suppress(RuntimeError):  # at the end of a process no thread can be started
            thread = Thread(target=_try_import, name="bloomredis: import numpy")
            thread.start()
            thread.join()
    return imported(module)


def _try_import() -> None:
    with suppress(Exception):  # an error: the caller's own import raises it
        imported("numpy")


class _Annotation:
    """The value of `NDArray` at runtime, for programs that evaluate annotations (`typing.get_type_hints`)."""

    def __getitem__(self, of: Any) -> Any:
        return _imported("numpy.typing").NDArray[of]


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:
    np = ModuleType("numpy")
    np.__getattr__ = _attribute
    NDArray = _Annotation()
