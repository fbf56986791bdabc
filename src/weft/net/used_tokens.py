"""Tokens that are accepted once, remembered until they expire. Laws: none is accepted twice; memory is bounded, and
when it is full no further one is accepted.
"""

from __future__ import annotations

from hashlib import blake2b
from heapq import heappop, heappush


class UsedTokens:
    """The ids of used tokens.

    >>> used = UsedTokens()
    >>> used.use(b"a", until=10, utc=1), used.use(b"a", until=10, utc=2), used.use(b"a", until=20, utc=11)
    ('', 'the token was used before', '')
    """

    def __init__(self, most: int = 100_000) -> None:
        self._most = most
        self._ids: set[bytes] = set()
        self._ends: list[tuple[int, bytes]] = []  # heap

    def __len__(self) -> int:
        return len(self._ids)

    def use(self, id: bytes, until: int, utc: int) -> str:
        """Use a token; why that is not possible, if it is not. Cost: O(log n)."""
        while self._ends and self._ends[0][0] <= utc:
            self._ids.discard(heappop(self._ends)[1])
        short = blake2b(id, digest_size=16).digest()
        if short in self._ids:
            return "the token was used before"
        if len(self._ids) >= self._most:
            return f"{self._most:,} single-use tokens are remembered; no more can be accepted now"
        self._ids.add(short)
        heappush(self._ends, (until, short))
        return ""
