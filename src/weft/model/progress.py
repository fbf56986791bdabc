"""How a long run says where it is."""

from __future__ import annotations

from collections.abc import Callable

RunProgress = Callable[[str, int, int], None]  # what is being done, how many of how many
