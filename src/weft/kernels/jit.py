"""The compiler, and the only module that names numba. Laws: compiled code is cached wherever a cache can be kept; with
NUMBA_DISABLE_JIT=1 every kernel runs as plain Python, with plain twins of the intrinsics.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _keep_cache() -> None:
    """Say where compiled code goes, unless the user did: beside the source, else where it can be written."""
    if "NUMBA_CACHE_DIR" in os.environ or os.access(Path(__file__).parent, os.W_OK):
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "weft" / "numba"
    try:
        home.mkdir(parents=True, exist_ok=True)
        usable = os.access(home, os.W_OK)
    except OSError:
        usable = False
    os.environ["NUMBA_CACHE_DIR"] = str(home) if usable else tempfile.mkdtemp(prefix="weft-numba-")


_keep_cache()

import numba  # noqa: E402
from llvmlite import ir  # noqa: E402
from numba.core import cgutils, types  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

__all__ = ["COMPILED", "cgutils", "intrinsic", "ir", "jit", "types"]

COMPILED = not getattr(numba.config, "DISABLE_JIT", False)


def jit(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel when it is first called; it runs without the GIL, and never raises on overflow."""
    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True, error_model="numpy")(kernel)
    return compiled
