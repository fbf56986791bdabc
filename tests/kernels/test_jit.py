"""Small work is done in plain Python, all other work by compiled kernels, with the same results."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from weftlab.bench.match import _FIRST

INDEXES = """
import hashlib
import numpy as np
import weft.kernels.jit
from weft import Index
from weft.index import TreeIndex
from weft.workloads import WORKLOADS

def told(index):
    for view in index._version.views:
        for name in ("nodes", "children", "columns", "data", "ids", "live"):
            array = getattr(view.tree, name)
            yield name, array.dtype, array.flags.c_contiguous, array.shape, hashlib.md5(array.tobytes()).hexdigest()
        rows = view.segment.rows
        for array in (rows.subs, rows.firsts):
            yield array.dtype, array.shape, hashlib.md5(array.tobytes()).hexdigest()

def small(name="W1", size=300):
    given = WORKLOADS[name](size, 20, seed=1)
    index = TreeIndex()
    index.add_texts(np.arange(size), given.texts())
    print(name, *told(index))
    for event in given.table.to_pylist():
        print(index.match(event).tolist())

def odd():
    index = Index({"a": "x > 1e308 OR y < -1e308", "b": "x >= -1e308 AND x < 1e308", "c": "x = 0 AND y IN (1, 2)"})
    for x in (-1e308, -0.0, 0, 1.5, 2**53, 1e308, float("inf"), float("nan"), None, "text"):
        print(index.match({"x": x, "y": 1}), index.match({"x": x, "y": -float("inf")}), index.match({"y": x}))

def large():
    small("W3", 20_000)

def batches():
    given = WORKLOADS["W2"](300, 50, seed=2)
    index = TreeIndex()
    index.add_texts(np.arange(300), given.texts())
    found = index.match_batch(given.table)
    print(found.offsets.tolist(), found.ids.tolist())
"""


def run(program: str, **env: str) -> str:
    """What a program prints, in a process of its own."""
    paths = os.pathsep.join(sys.path)
    env = {**os.environ, "NUMBA_DISABLE_JIT": "0", "PYTHONPATH": paths, **env}
    command = [sys.executable, "-W", "error", "-c", dedent(program)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_match_of_a_thousand_filters_loads_no_compiler() -> None:
    assert run(f"{_FIRST}\nimport sys\nprint('numba' in sys.modules, 'llvmlite' in sys.modules)") == "False False\n"


@pytest.mark.parametrize("work", ["large()", "batches()"])
def test_other_work_loads_it(work: str) -> None:
    assert run(f"{INDEXES}\n{work}\nimport sys\nprint('numba' in sys.modules)").endswith("True\n")


def test_it_may_be_loaded_before_any_kernel_is_imported() -> None:
    small = "small()\nbatches()"
    assert run(f"import weft.kernels.jit\nweft.kernels.jit.load()\n{INDEXES}\n{small}") == run(INDEXES + small)


def test_many_small_matches_load_it_soon() -> None:
    program = """
        import sys
        from weft.index import TreeIndex
        from weft.kernels import jit
        index = TreeIndex()
        index.add_texts([1], ["x > 1"])
        count = 0
        while "numba" not in sys.modules:
            assert index.match({"x": 2}).tolist() == [1]
            count += 1
        assert 10 < count <= jit.MOST_IN_ALL // jit._LEAST, count
        assert index.match({"x": 2}).tolist() == [1]
        assert index.match({"x": 1}).tolist() == []
    """
    run(program)


ORDERS = {
    "small work first": "small(); odd(); small('W2', 40); large(); batches(); small('W4')",
    "large work first": "large(); small(); odd(); small('W2', 40); batches(); small('W4')",
}


@pytest.mark.parametrize("calls", ORDERS.values(), ids=ORDERS)
def test_results_are_the_same_bit_for_bit(calls: str) -> None:
    lazily = run(f"{INDEXES}\n{calls}")
    at_once = run(f"{INDEXES}\nweft.kernels.jit.load()\n{calls}")
    assert lazily == at_once


def test_results_are_those_of_plain_python() -> None:
    calls = "small(); odd(); small('W2', 40); batches(); small('W4')"
    assert run(f"{INDEXES}\n{calls}") == run(f"{INDEXES}\n{calls}", NUMBA_DISABLE_JIT="1")


def test_what_plain_kernels_made_is_of_the_types_that_compiled_ones_make() -> None:
    """Otherwise kernels would be compiled once more, for these."""
    program = f"""{INDEXES}
from weft.kernels.compiler import KERNELS
given = WORKLOADS["W1"](300, 50, seed=1)
index = TreeIndex()
FIRST
index.add_texts(np.arange(300), given.texts())
index.match(given.table.to_pylist()[0])
weft.kernels.jit.load()
index.match(given.table.to_pylist()[0])
index.match_batch(given.table)
index.add_texts(np.arange(300, 600), given.texts())
index.discard_many(range(200))
index.settle()
index.match(given.table.to_pylist()[0])
index.match_batch(given.table)
for kernel in KERNELS:
    for signature in kernel.signatures:
        print(kernel.__name__, signature)
"""
    lazily = set(run(program.replace("FIRST", "")).splitlines())
    at_once = set(run(program.replace("FIRST", "weft.kernels.jit.load()")).splitlines())
    assert lazily
    assert lazily <= at_once


def test_after_loading_every_module_has_the_compiled_kernels_themselves() -> None:
    program = """
        import sys
        import weft.index, weft.order
        from weft.index import TreeIndex
        from weft.kernels import jit
        jit.load()
        import weft.routing.negative.structure, weft.space.curve
        names = [(name, key) for name, module in [*sys.modules.items()] if name.startswith("weft")
                 for key, value in vars(module).items() if isinstance(value, jit._Kernel)]
        assert not names, names
        assert hasattr(sys.modules["weft.index.single_event"].match_one, "py_func")
    """
    run(program)


def test_threads_get_the_same_results_while_the_compiler_is_loaded() -> None:
    program = """
        import sys, threading
        import numpy as np
        from weft.index import TreeIndex
        from weft.kernels.jit import load
        sys.setswitchinterval(1e-5)
        index = TreeIndex()
        index.add_texts(np.arange(200), [f"x >= {n} AND y < {n}" for n in range(200)])
        wrong, loaded = [], threading.Event()

        def match(y):
            more = 20
            while more:
                more -= loaded.is_set()
                if sorted(index.match({"x": 100.5, "y": float(y)})) != list(range(y + 1, 101)):
                    wrong.append(y)

        threads = [threading.Thread(target=match, args=(y,)) for y in (0, 50, 99, 150)]
        loads = [threading.Thread(target=load) for _ in range(3)]
        for each in (*threads, *loads):
            each.start()
        for each in loads:
            each.join()
        loaded.set()
        for each in threads:
            each.join()
        assert not wrong
    """
    run(program)


OWN = """
import numpy as np
from weft.kernels import jit
from weft.kernels.simd import ones

@jit.inner
def twice(x):
    return ones(np.uint32(x)) + 2 * x

@jit.jit
def heavy(x):
    return twice(x)

@jit.light(jit.elements)
def total(values):
    found = 0
    for value in values:
        found += heavy(value)
    return found

kept, few, many = [total], np.arange(10), np.arange(jit.MOST_AT_ONCE)
"""


def run_own(program: str, place: Path) -> str:
    """What a program with kernels of its own prints; compiled code is cached only for a file."""
    (place / "script.py").write_text(OWN + program)
    env = {
        **os.environ,
        "NUMBA_DISABLE_JIT": "0",
        "NUMBA_CACHE_DIR": str(place),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-W", "error", str(place / "script.py")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("calls", "loaded"),
    [
        ("total(few)", False),
        ("heavy(np.int64(3))", True),
        ("total(many)", True),
        ("jit.load()", True),
        ("for _ in range(jit.MOST_IN_ALL // 64): total(few)", True),
    ],
)
def test_which_calls_load_the_compiler(calls: str, loaded: bool, tmp_path: Path) -> None:
    after = """
import sys
print("numba" in sys.modules)
print(total(few), kept[0](few), heavy(np.int64(5)), kept[0](few), total is kept[0])
"""
    assert run_own(calls + after, tmp_path) == f"{loaded}\n105 105 12 105 False\n"


def test_a_kernel_defined_after_loading_is_compiled_at_once(tmp_path: Path) -> None:
    program = """
jit.load()
@jit.light(jit.elements)
def last(values):
    return values[values.size - 1] + twice(1)

assert hasattr(last, "py_func")
print(last(few), last.signatures != [])
"""
    assert run_own(program, tmp_path) == "12 True\n"


def test_nothing_is_loaded_within_a_plain_kernel(tmp_path: Path) -> None:
    """As when garbage is collected there, and something of it calls a kernel."""
    program = """
import sys
@jit.light(jit.elements)
def collecting(values):
    jit.load()
    return total(many[:100]) + heavy(1)

print(collecting(few), "numba" in sys.modules)
print(heavy(np.int64(1)), "numba" in sys.modules)
"""
    assert run_own(program, tmp_path) == f"{_total(100) + 3} False\n3 True\n"


def test_a_child_of_a_fork_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    program = """
import os, threading
inside, done = threading.Event(), threading.Event()
@jit.light(jit.elements)
def waiting(values):
    inside.set()
    done.wait()
    return 0

thread = threading.Thread(target=waiting, args=(few,))
thread.start()
inside.wait()
child = os.fork()
if not child:
    os._exit(total(few))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done.set()
thread.join()
print(total(few))
"""
    assert run_own(program, tmp_path) == "105\n105\n"


FORKED = """
child = os.fork()
if not child:
    signal.alarm(60)  # that a child which hangs is not waited for
    os._exit(int(heavy(np.int64(5))) + 100 * bool(done))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
thread.join()
"""


def test_a_fork_waits_for_a_thread_that_loads_a_kernel(tmp_path: Path) -> None:
    program = """
import os, signal, threading, time
jit.load()
inside, done = threading.Event(), []
def loading():
    with jit._compiler().global_compiler_lock:
        inside.set()
        time.sleep(0.2)
        done.append(True)

thread = threading.Thread(target=loading)
thread.start()
inside.wait()
"""
    assert run_own(program + FORKED, tmp_path) == "112\n"


def test_a_fork_waits_for_a_thread_that_imports_the_compiler(tmp_path: Path) -> None:
    program = """
import os, signal, threading, time
inside, done, real = threading.Event(), [], jit.import_module
def importing(name):
    inside.set()
    time.sleep(0.2)
    module = real(name)
    if name.endswith("compiler"):
        done.append(True)
    return module

jit.import_module = importing
thread = threading.Thread(target=jit.load)
thread.start()
inside.wait()
"""
    assert run_own(program + FORKED, tmp_path) == "112\n"


def test_an_interrupt_while_code_is_loaded_comes_afterwards(tmp_path: Path) -> None:
    program = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
jit.load()
from numba.core.registry import cpu_target
engine = cpu_target.target_context.codegen()._engine._ee
real, calls = engine._object_cache_getbuffer, []
def interrupted(module):
    calls.append(module)
    if len(calls) == 1:
        signal.raise_signal(signal.SIGINT)
        calls.append("went on")
    return real(module)

engine._object_cache_getbuffer = interrupted
try:
    heavy(np.int64(1))
except KeyboardInterrupt:
    print("interrupted", calls[1], signal.getsignal(signal.SIGINT) is signal.default_int_handler)
print(heavy(np.int64(5)))
"""
    for _ in range(2):  # it is compiled by the first run, and loaded by the second
        assert run_own(program, tmp_path) == "interrupted went on True\n12\n"


def test_an_interrupted_load_is_finished_by_the_next_call(tmp_path: Path) -> None:
    program = """
bind, calls = jit._bind, []
def interrupted(names):
    calls.append(names)
    if len(calls) == 2:
        raise KeyboardInterrupt
    bind(names)

jit._bind = interrupted
try:
    heavy(np.int64(1))
except KeyboardInterrupt:
    print("interrupted")
print(total(few), heavy(np.int64(5)), kept[0](few))
"""
    assert run_own(program, tmp_path) == "interrupted\n105 12 105\n"


def _total(count: int) -> int:
    return sum(each.bit_count() + 2 * each for each in range(count))
