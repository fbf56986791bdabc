"""Two hashes of a label, from which any number of hashes follow. They are the same on every machine, compiled or not.

Every step is a product of 32 and 31 bits. Signed 64-bit integers never overflow, so plain Python gives the same result.
"""

from __future__ import annotations

from weft.kernels.jit import inner, jit

_LOW = 0xFFFFFFFF


@inner
def mix(h):
    """A mix of 32 bits: every output bit depends on all input bits."""
    h ^= h >> 16
    h = (h * 0x21F0AAAD) & _LOW
    h ^= h >> 15
    h = (h * 0x7FEB352D) & _LOW
    h ^= h >> 15
    h = (h * 0x31848BAB) & _LOW
    return h ^ (h >> 14)


@jit
def two(label, seed):
    """Two 32-bit hashes of a nonnegative label and a 32-bit seed. The second one is odd.

    The first plus i times the second, for i = 0, 1, ..., works as well as independent hashes (DLS 3.2). Modulo a power
    of two, an odd step does not repeat early.
    """
    first = mix((label & _LOW) ^ seed)
    first = mix(first ^ (label >> 32))
    second = mix((first + 0x3C6EF372) & _LOW)
    second = mix(second ^ (label & _LOW))
    return first, second | 1
