"""The compiler, and the only module that imports numba. Compiled code is cached wherever a cache can be written.

Importing it takes a quarter of a second: `jit.load` does it, when there is work for it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
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
    models = source.parent / "routing"
    paths = [*sorted(source.glob("*.py")), *sorted(models.glob("*/kernels/*.py"))]
    sources = b"".join(path.read_bytes() for path in paths)
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
        atexit.register(_remove, cache, os.getpid())
    os.environ["NUMBA_CACHE_DIR"] = str(cache)


def _remove(cache: Path, process: int) -> None:
    """Remove the folder of a process at its end; a child of a fork leaves it alone."""
    if os.getpid() == process:
        shutil.rmtree(cache, ignore_errors=True)


_keep_cache()

import numba  # noqa: E402
from llvmlite import ir  # noqa: E402
from llvmlite.binding import ffi  # noqa: E402
from numba.core import cgutils, codegen, event, types  # noqa: E402
from numba.core.caching import FunctionCache  # noqa: E402
from numba.core.compiler_lock import global_compiler_lock  # noqa: E402
from numba.core.runtime.nrt import rtsys  # noqa: E402
from numba.extending import box, intrinsic, models, register_model  # noqa: E402

from weft.kernels import compile_notice  # noqa: E402

__all__ = [
    "COMPILES",
    "KERNELS",
    "box",
    "cgutils",
    "compile_kernel",
    "compiled_here",
    "global_compiler_lock",
    "hold_compiler",
    "intrinsic",
    "ir",
    "models",
    "populate_array",
    "register_model",
    "release_compiler",
    "types",
    "uncached",
]

COMPILES = not getattr(numba.config, "DISABLE_JIT", False)  # a file of settings may say so too
KERNELS: list[Any] = []  # every kernel of the modules that were imported


class _Listener(event.Listener):
    """Hears of compilations; what comes out of the cache is none."""

    def on_start(self, event: Any) -> None:  # noqa: ARG002
        compile_notice.compiling()

    def on_end(self, event: Any) -> None:
        pass


event.register("numba:compile", _Listener())  # type: ignore[no-untyped-call]


def populate_array(array: Any, **parts: Any) -> None:
    """Fill in an array's structure in code that is being compiled; only then is it imported."""
    from numba.np.arrayobj import populate_array

    populate_array(array, **parts)  # type: ignore[no-untyped-call]


@contextmanager
def _signals_held() -> Iterator[None]:
    """Run the program's signal handlers afterwards. Only the main thread runs any.

    While code is loaded, LLVM calls back into Python. A handler that raised there, as that of Ctrl-C does, would leave
    LLVM without the code that it asked for, and crash the process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    with ExitStack() as handlers:
        for number in signal.valid_signals():
            if callable(handler := signal.getsignal(number)):
                handlers.callback(signal.signal, number, handler)
                signal.signal(number, lambda number, _: came.append(number))
        yield
    for each in came:
        signal.raise_signal(each)


def _hold_signals_in(engine: type[Any]) -> None:
    """Hold signals wherever numba's engine makes code executable, whether it was compiled or loaded."""
    finalize = engine.finalize_object

    def finalize_object(self: Any) -> Any:
        with _signals_held():
            return finalize(self)

    engine.finalize_object = finalize_object


if hasattr(codegen, "JitEngine"):
    _hold_signals_in(codegen.JitEngine)


_llvm_lock: Any = getattr(ffi.lib, "_lock", None)  # not public


def hold_compiler() -> None:
    """Wait until no other thread is inside the compiler, and keep it so until `release_compiler`."""
    global_compiler_lock.acquire()  # type: ignore[no-untyped-call]
    if _llvm_lock is not None:
        _llvm_lock.__enter__()


def release_compiler() -> None:
    """Let other threads into the compiler again."""
    if _llvm_lock is not None:
        _llvm_lock.__exit__(None, None, None)
    global_compiler_lock.release()  # type: ignore[no-untyped-call]


class _KernelCache(FunctionCache):
    """The cache of a kernel's compiled code. Loading needs only the runtime that kernels call. Numba's own cache first
    sets up all that the compiler knows, which takes longer than loading; compiling does that anyway.

    This calls methods of numba's that are not public. Where `_can_load` does not find them, numba's own cache is used.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)
        with _signals_held(), self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


def _can_load(cache: type[Any], dispatcher: Any) -> bool:
    """Whether this numba has what `_KernelCache` relies on."""
    private = ("_load_overload", "_guard_against_spurious_io_errors")
    return all(hasattr(cache, name) for name in private) and hasattr(dispatcher, "_cache")


def compile_kernel(kernel: Callable[..., Any], **options: Any) -> Any:
    """A kernel that is compiled on its first call. It runs without the GIL and never raises on overflow."""
    compiled: Any = numba.njit(nogil=True, error_model="numpy", **options)(kernel)
    if COMPILES and _can_load(FunctionCache, compiled):
        compiled._cache = _KernelCache(kernel)  # type: ignore[no-untyped-call]
    elif COMPILES:
        compiled.enable_caching()
    KERNELS.append(compiled)
    return compiled


def uncached() -> list[str]:
    """The imported kernels of which no compiled code is kept."""
    if not COMPILES:
        return []
    missing = [each for each in KERNELS if not os.path.exists(each._cache._cache_file._index_path)]
    return sorted(f"{each.py_func.__module__}.{each.py_func.__name__}" for each in missing)


def compiled_here() -> int:
    """How many kernels this process compiled itself, instead of loading them."""
    return sum(bool(each.stats.cache_misses) for each in KERNELS) if COMPILES else 0
