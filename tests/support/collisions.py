"""Items with the same MurmurHash3 x64 128 for every seed.

A difference in one bit of a mixed block that the next step rotates to the top bit stays in the top bit
through additions and multiplications by 5, and so is cancelled with certainty (Aumasson, Bernstein &
Bosslet, "Hash-flooding DoS reloaded", 2012). Blocks are mixed reversibly, so a message with chosen mixed
differences is computed.
"""

from __future__ import annotations

_MASK = 2**64 - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def collision(item: bytes) -> bytes:
    """Return another item of 32 bytes with the same hash as this one."""
    words = [int.from_bytes(item[at : at + 8], "little") for at in range(0, 32, 8)]
    words[0] = _changed(words[0], 1 << 36, _C1, 31, _C2)  # rotated by 27 to the top bit of h1
    words[1] = _changed(words[1], 1 << 32, _C2, 33, _C1)  # turned by 31: that of h2, where h1's cancels it
    words[2] = _changed(words[2], 1 << 63, _C1, 31, _C2)  # cancels that of h1
    return b"".join(word.to_bytes(8, "little") for word in words)


def _changed(word: int, difference: int, first: int, turn: int, second: int) -> int:
    """Return the word whose mixed form differs from that of `word` only in some bits."""
    mixed = _turned(word * first & _MASK, turn) * second & _MASK
    undone = (mixed ^ difference) * pow(second, -1, 2**64) & _MASK
    return _turned(undone, 64 - turn) * pow(first, -1, 2**64) & _MASK


def _turned(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _MASK
