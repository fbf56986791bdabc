"""The compiler, and the only module that imports numba. Laws: compiled code is cached wherever a cache can be written;
with NUMBA_DISABLE_JIT=1 every kernel runs as plain Python, with plain twins of the intrinsics.
"""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _keep_cache() -> None:
    """Choose the cache folder unless the user did: beside the source if possible, else wherever it can be written.

    The folder is named after the sources of all kernels, because kernels are compiled into one another: changing one
    recompiles all.
    """
    if "NUMBA_CACHE_DIR" in os.environ:
        return
    source = Path(__file__).parent
    sources = b"".join(path.read_bytes() for path in sorted(source.glob("*.py")))
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.path.expanduser("~"), ".cache"), "weft")
    for home in (source / "__pycache__", users) if users.is_absolute() else (source / "__pycache__",):
        cache = home / f"numba-{zlib.crc32(sources):08x}"
        try:
            cache.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(cache, os.W_OK):
            break
    else:
        cache = Path(tempfile.mkdtemp(prefix="weft-numba-"))
    os.environ["NUMBA_CACHE_DIR"] = str(cache)


_keep_cache()

import numba  # noqa: E402
from llvmlite import ir  # noqa: E402
from numba.core import cgutils, types  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

__all__ = ["COMPILED", "cgutils", "intrinsic", "ir", "jit", "types"]

COMPILED = not getattr(numba.config, "DISABLE_JIT", False)


def jit(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a kernel on its first call. It runs without the GIL and never raises on overflow."""
    compiled: Callable[..., Any] = numba.njit(cache=True, nogil=True, error_model="numpy")(kernel)
    return compiled
