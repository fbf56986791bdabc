"""Violations: what must hold in a simulated run and did not, in one sentence."""

from __future__ import annotations


class Violation(AssertionError):  # noqa: N818 - the word that simulations use
    """A law was broken."""


def require(holds: bool, law: str) -> None:
    """Raise Violation unless a law holds."""
    if not holds:
        raise Violation(law)
