"""Kernels that run as plain Python until there is work for the compiler. Laws: a kernel gives the same result plain and
compiled; plain work is bounded, for a call and in all; once the compiler is loaded, all calls are of compiled kernels.

Loading the compiler and a few kernels takes 0.4 s. In that time plain Python builds an index of a thousand filters and
matches an event, three times over. So kernels marked `light` run plain while there is little to do. Any other kernel,
a larger call, or many small ones load the compiler. Then compiled kernels take the places of the plain functions in all
modules of Weft, and calling them costs nothing more. A program that must not pause later calls `load` when it starts.

With NUMBA_DISABLE_JIT=1, nothing is ever compiled.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import update_wrapper
from importlib import import_module
from typing import Any

import numpy as np

Function = Callable[..., Any]

COMPILED = os.environ.get("NUMBA_DISABLE_JIT", "0") in {"", "0"}
MOST_AT_ONCE = 1 << 14  # elements that one call may work on in plain Python
MOST_IN_ALL = 1 << 17  # and all of them: a quarter of a second, which is less than loading takes
_LEAST = 64  # elements in whose time a call without any begins and ends

_standing: list[tuple[Any, Callable[[], Any]]] = []  # what stands in modules, and what makes its compiled form
_forms: dict[int, Any] = {}  # compiled forms, by the identity of what stood there
_homes: set[str] = set()  # modules of intrinsics


class _PlainWork:
    """The work done in plain Python. One thread at a time does some, with the lock, and nothing is loaded meanwhile."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.loading = threading.RLock()  # held while the compiler is imported, for which a fork waits
        self.worker: int | None = None  # the thread
        self.elements = 0  # so far
        self.ending = False  # the compiled forms are there, if not yet in all their places
        self.over = not COMPILED

    def affords(self, elements: int) -> bool:
        """Whether so much work may be done; if so, it is counted."""
        elements += _LEAST
        if elements > MOST_AT_ONCE or self.elements + elements > MOST_IN_ALL:
            return False
        self.elements += elements
        return True

    def do(self, kernel: Function, arguments: tuple[Any, ...]) -> Any:
        """Run a kernel. It warns of overflow no more than a compiled one."""
        self.worker = threading.get_ident()
        try:
            with np.errstate(all="ignore"):
                return kernel(*arguments)
        finally:
            self.worker = None

    def forked(self) -> None:
        """Take a new lock: the threads of the parent, which could release the old one, do not exist here."""
        self.lock, self.worker = threading.RLock(), None


_plain = _PlainWork()


class _Fork:
    """A fork waits until no other thread loads the compiler or a kernel: the child does not have that thread, and would
    wait for ever for the locks that it holds.
    """

    def __init__(self) -> None:
        self._compiler: Any = None  # if it is held

    def before(self) -> None:
        _plain.loading.acquire()
        compiler: Any = sys.modules.get(_COMPILER)
        if hasattr(compiler, "hold_compiler"):
            compiler.hold_compiler()
            self._compiler = compiler

    def after(self) -> None:
        if self._compiler is not None:
            self._compiler.release_compiler()
            self._compiler = None
        _plain.loading.release()


_COMPILER = "weft.kernels.compiler"
if hasattr(os, "register_at_fork"):
    _fork = _Fork()
    os.register_at_fork(before=_fork.before, after_in_parent=_fork.after, after_in_child=_fork.after)
    os.register_at_fork(after_in_child=_plain.forked)


class _Kernel:
    """Stands for a kernel until the compiler is loaded; if it is kept for longer, it calls the compiled one."""

    def __init__(self, plain: Function, work: Callable[..., int] | None) -> None:
        self.plain, self.work = plain, work
        update_wrapper(self, plain)

    def __call__(self, *arguments: Any) -> Any:
        if not _plain.over:
            with _plain.lock:
                if _plain.worker is not None:  # this thread, in a plain kernel
                    return self.plain(*arguments)
                if not _plain.ending and self.work is not None and _plain.affords(self.work(*arguments)):
                    return _plain.do(self.plain, arguments)
            load()
        return _forms[id(self)](*arguments)


def elements(*arguments: Any) -> int:
    """How many elements the arrays among the arguments have, also those in tuples."""
    return sum(
        each.size if isinstance(each, np.ndarray) else elements(*each) if isinstance(each, tuple) else 0
        for each in arguments
    )


def jit(kernel: Function) -> Function:
    """A kernel that Python calls. It runs without the GIL and never raises on overflow."""
    return _registered(kernel, _Kernel(kernel, None))


def light(work: Callable[..., int]) -> Callable[[Function], Function]:
    """A kernel that Python calls and that may run plain, as long as `work` of its arguments is small.

    `work` gives an upper bound of the elements that the kernel looks at, up to a small factor, and reads no more than
    sizes.
    """
    return lambda kernel: _registered(kernel, _Kernel(kernel, work))


def inner(kernel: Function) -> Function:
    """A kernel that only kernels call, compiled without the wrappers that calls from Python need."""
    return _registered(kernel, kernel, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(kernel: Function) -> Function:
    """A kernel that is compiled into each kernel that calls it. This is for hot loops: a call counts references to
    every array that it passes, by atomic operations, which take longer than the search of a leaf.
    """
    return _registered(kernel, kernel, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)


def intrinsic(home: str) -> Callable[[Function], Function]:
    """The plain twin of an intrinsic, which has the same name in the module `home`."""

    def register(plain: Function) -> Function:
        def form() -> Any:
            return getattr(import_module(home), plain.__name__) if _compiler().COMPILES else plain

        _homes.add(home)
        return _stand(plain, plain, form)

    return register


def _registered(kernel: Function, standing: Function, **options: Any) -> Function:
    return _stand(kernel, standing, lambda: _compiler().compile_kernel(kernel, **options))


def _stand(plain: Function, standing: Function, form: Callable[[], Any]) -> Function:
    """What stands in the module of a plain function: the compiled form if the compiler is loaded."""
    if not COMPILED:
        return plain
    with _plain.lock:
        if not _plain.ending:
            _standing.append((standing, form))
            return standing
    _bind(plain.__globals__)  # it may have been imported while the compiler was loaded
    return form()  # type: ignore[no-any-return]


def load() -> None:
    """Load the compiler. From now on, each kernel is loaded from the cache, or compiled, on its first call.

    Cost: 0.25 s the first time, nothing later. A plain kernel that is running finishes first.
    """
    while not _plain.over and _plain.worker != threading.get_ident():
        known = {*_homes}
        with _plain.loading:
            for home in known:  # without the other lock, for which another thread's import may be waiting
                import_module(home)
            compiler = _compiler()
        with compiler.global_compiler_lock, _plain.lock:  # nothing is compiled before all forms are in place
            if _homes == known:
                if not _plain.ending:
                    _forms.update({id(standing): form() for standing, form in _standing})
                    _plain.ending = True  # perhaps without any: then those that are imported later are compiled at once
                for module in _modules():
                    _bind(module)
                _plain.over = True


def _compiler() -> Any:
    return import_module(_COMPILER)


def _modules() -> list[dict[str, Any]]:
    """The names of each module of Weft that has been imported, and of others that define kernels."""
    ours = [module.__dict__ for name, module in [*sys.modules.items()] if name.partition(".")[0] == "weft"]
    plain = [getattr(standing, "plain", standing) for standing, _ in _standing]
    return [*{id(names): names for names in [*ours, *(each.__globals__ for each in plain)]}.values()]


def _bind(names: dict[str, Any]) -> None:
    """Put compiled forms in the places of what stood for them."""
    for name, value in [*names.items()]:
        if id(value) in _forms:
            names[name] = _forms[id(value)]
