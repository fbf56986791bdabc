"""Settings of all tests: a routine run starts Java as one does for short programs."""

from __future__ import annotations

import gc
import os
import sys
from functools import cache
from itertools import count

import typer.testing
from hypothesis import settings

from strategies import EXAMPLES, thorough

# No test lives long enough to be repaid for the optimising compiler or for parallel garbage collection: without them
# those of `aggregate` took 47 s of processor time instead of 82. Longer runs take Java as users do.
SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
if EXAMPLES == 1:
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
        os.environ.setdefault(name, SHORT_LIVED)

# A law that says nothing else draws as the others do: few examples, and the same ones, in a routine run.
settings.register_profile("weft", thorough(100))
settings.load_profile("weft")

# Typer makes all commands anew for each call that a test makes, which takes longer than most calls.
typer.testing._get_command = cache(typer.testing._get_command)

_EVERY = 100  # tests
_finished = count(1)


def pytest_collection_finish() -> None:
    """Tests are about compiled kernels, unless they say otherwise.

    Thousands of tests and their modules are never garbage: without this every collection looks at all of them.
    """
    if "weft.kernels.jit" in sys.modules:
        sys.modules["weft.kernels.jit"].load()
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish() -> None:
    """Nor are compiled kernels and caches, which come by and by: late in a run a collection took half a second."""
    if next(_finished) % _EVERY == 0:
        gc.collect()
        gc.freeze()
