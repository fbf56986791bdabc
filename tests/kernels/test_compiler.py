"""Where compiled code is kept: beside the source, else in a cache of the user's, else in a folder of this process."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from weft.kernels import compiler


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's folder cannot be written; root may write anywhere, so this is played."""
    may = os.access
    source = Path(compiler.__file__).parent
    monkeypatch.setattr(os, "access", lambda path, mode: source not in Path(path).parents and may(path, mode))
    _unset(monkeypatch)


def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")  # so that it is taken back at the end
    monkeypatch.delenv("NUMBA_CACHE_DIR")


def test_a_writable_package_keeps_its_own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    _unset(monkeypatch)
    compiler._keep_cache()
    first = Path(os.environ["NUMBA_CACHE_DIR"])
    assert first.parent == Path(compiler.__file__).parent / "__pycache__"


def test_changed_sources_have_another_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One kernel is compiled into another: numba itself would go on with the old one."""
    found = []
    for text in ("first = 1", "second = 2"):
        (tmp_path / "kernel.py").write_text(text)
        _unset(monkeypatch)
        monkeypatch.setattr(compiler, "__file__", str(tmp_path / "compiler.py"))
        compiler._keep_cache()
        found.append(os.environ["NUMBA_CACHE_DIR"])
    assert found[0] != found[1]


def test_what_the_user_says_counts(read_only: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", "mine")
    compiler._keep_cache()
    assert os.environ["NUMBA_CACHE_DIR"] == "mine"


def test_a_read_only_package_has_a_cache_of_the_users(
    read_only: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compiler._keep_cache()
    made = Path(os.environ["NUMBA_CACHE_DIR"])
    assert made.parent == tmp_path / "weft"
    assert made.is_dir()


def test_without_a_home_there_is_a_folder_for_this_process(
    read_only: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    at_end: list[tuple[Any, ...]] = []
    monkeypatch.setattr(atexit, "register", lambda *call: at_end.append(call))
    compiler._keep_cache()
    made = Path(os.environ["NUMBA_CACHE_DIR"])
    assert made.is_dir()
    ((remove, folder, process),) = at_end
    remove(folder, process + 1)  # as in a child
    assert made.is_dir()
    remove(folder, process)
    assert not made.exists()


COMPILES = """
from weft.kernels import compile_notice
compile_notice.listen(lambda: print("compiling"))
from weft.kernels.jit import jit
@jit
def one(x):
    return x + 1
@jit
def two(x):
    return one(x) + 1
import sys
print(one(1) if sys.argv[1] == "one" else two(1))
"""


@pytest.mark.skipif(not compiler.COMPILES, reason="nothing is compiled")
def test_a_listener_hears_once_that_kernels_are_compiled_and_not_that_they_are_loaded(tmp_path: Path) -> None:
    """Also if one is loaded and another, which calls it, is compiled."""
    script = tmp_path / "script.py"
    script.write_text(COMPILES)
    source = str(Path(compiler.__file__).parent.parent.parent)
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": source}
    said = [
        subprocess.run([sys.executable, str(script), what], capture_output=True, text=True, env=env, check=True).stdout
        for what in ("one", "two", "two")
    ]
    assert said == ["compiling\n2\n", "compiling\n3\n", "3\n"]


@pytest.mark.slow
@pytest.mark.skipif(not compiler.COMPILES, reason="nothing is compiled")
def test_warming_compiles_every_kernel() -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(compiler.__file__).parent.parent.parent)}
    done = subprocess.run([sys.executable, "-m", "weft.warm"], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    code = "from weft.kernels.compiler import compiled_here; from weft.warm import warm; warm(); print(compiled_here())"
    again = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert again.stdout == "0\n"


@pytest.mark.skipif(not compiler.COMPILES, reason="nothing is compiled")
def test_a_numba_without_the_private_methods_uses_its_own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def double(number: int) -> int:
        return 2 * number

    class Public:
        def load_overload(self) -> None: ...

    assert compiler._can_load(compiler.FunctionCache, compiler.numba.njit(double))
    assert not compiler._can_load(Public, compiler.numba.njit(double))
    monkeypatch.setattr(compiler, "KERNELS", [])
    monkeypatch.setattr(compiler, "_can_load", lambda *_: False)
    kernel = compiler.compile_kernel(double)
    assert type(kernel._cache) is compiler.FunctionCache
    assert kernel(4) == 8
    assert compiler.uncached() == []


def test_a_program_that_listens_to_nothing_is_told_once_that_kernels_are_compiled():
    program = "from weft.kernels.compile_notice import compiling\ncompiling()\ncompiling()\n"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr.count("compiling kernels, once on this machine") == 1
