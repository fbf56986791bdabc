"""Two hashes of a label, from which any number follow. Law: the same on every machine, compiled or not.

All steps are products of 32 and 31 bits, so that signed 64 bits never overflow: plain Python counts the same.
"""

from __future__ import annotations

from weft.kernels.jit import jit

_LOW = 0xFFFFFFFF


@jit
def mix(h):
    """32 bits, each of which depends on all of the given 32."""
    h ^= h >> 16
    h = (h * 0x21F0AAAD) & _LOW
    h ^= h >> 15
    h = (h * 0x7FEB352D) & _LOW
    h ^= h >> 15
    h = (h * 0x31848BAB) & _LOW
    return h ^ (h >> 14)


@jit
def two(label, seed):
    """Two hashes of 32 bits of a label (not negative) and a seed (32 bits); the second is odd.

    The first plus i times the second, for i = 0, 1, ..., serve as well as independent hashes (DLS 3.2), and on a power
    of two an odd step never comes back too early.
    """
    first = mix((label & _LOW) ^ seed)
    first = mix(first ^ (label >> 32))
    second = mix((first + 0x3C6EF372) & _LOW)
    second = mix(second ^ (label & _LOW))
    return first, second | 1
