"""The progress of a long run."""

from __future__ import annotations

from collections.abc import Callable

RunProgress = Callable[[str, int, int], None]  # what is being done, how many of how many
