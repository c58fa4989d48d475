"""What compiled Lua reads and writes outside its locals, by the bytecode of Lua 5.1, which servers have."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Final

from lupa import lua51

_GET_GLOBAL, _SET_GLOBAL = 5, 7
_NIL, _BOOLEAN, _NUMBER, _STRING = 0, 1, 3, 4
_HEADER_BYTES: Final = 12


@dataclass
class Compiled:
    """A script's globals, and the registers of its main function; a function has at most 250."""

    read: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    registers: int = 0


def compiled(text: str) -> Compiled:
    """Compile a script; `SyntaxError` if it has one."""
    dump: Any = lua51.LuaRuntime(encoding=None).execute(
        b"return function(text) local f, why = loadstring(text) return f and string.dump(f), why end"
    )
    code, why = dump(text.encode())
    if code is None:
        raise SyntaxError(why.decode())
    return _Reader(code).result


class _Reader:
    """A reader of one chunk: nested functions, each with its code, constants and debug information."""

    def __init__(self, code: bytes) -> None:
        self._code = code
        self._at = _HEADER_BYTES
        self.result = Compiled()
        self.result.registers = self._read_function()

    def _unpack(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self._code, self._at)
        self._at += struct.calcsize(form)
        return value

    def _text(self) -> str:
        length = self._unpack("Q")
        self._at += length
        return self._code[self._at - length : self._at - 1].decode("latin-1")

    def _constant(self) -> object:
        kind = self._unpack("B")
        if kind == _NIL:
            return None
        return self._text() if kind == _STRING else self._unpack("B" if kind == _BOOLEAN else "d")

    def _read_function(self) -> int:
        self._text()
        self._at += 2 * 4 + 3  # its lines, and the numbers of upvalues and parameters
        registers: int = self._unpack("B")
        code = [self._unpack("I") for _ in range(self._unpack("i"))]
        constants = [self._constant() for _ in range(self._unpack("i"))]
        for word in code:
            for operation, names in ((_GET_GLOBAL, self.result.read), (_SET_GLOBAL, self.result.written)):
                if word & 63 == operation:
                    names.add(str(constants[word >> 14]))
        for _ in range(self._unpack("i")):
            self._read_function()
        for _ in range(self._unpack("i")):  # a line for each instruction
            self._at += 4
        for _ in range(self._unpack("i")):  # locals
            self._text()
            self._at += 2 * 4
        for _ in range(self._unpack("i")):  # upvalues
            self._text()
        return registers
