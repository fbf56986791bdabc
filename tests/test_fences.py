"""Fences: what a package must not touch. The layers themselves are import-linter's."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"

# the client's faces and drivers; its session, publisher and subscriptions are machines without a loop and a clock
CLIENT = tuple(
    f"weft/client/{name}.py" for name in ("async_subscription", "client", "connection", "engine", "subscription_handle")
)

# what must not be imported, and where it may be all the same
FENCES = {
    "numba": ("weft/kernels/compiler.py",),
    "pyspark": ("weft/spark/", "weftlab/"),
    "asyncio": (*CLIENT, "weft/server/", "weft/gateway/", "weft/console/", "weft/testing/", "weftlab/"),
    "socket": ("weft/server/", "weft/testing/", "weftlab/"),
    "random": ("weft/client/engine.py", "weft/server/", "weft/testing/", "weftlab/"),
    "time": ("weft/server/", "weft/spark/", "weft/testing/", "weft/cli/", "weft/models/", "weftlab/"),
    "weftlab": ("weftlab/",),
}
CLOCKS = {"now", "utcnow", "today"}


def imports(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


def trespasses(path: str, text: str) -> list[str]:
    tree = ast.parse(text)
    found = [name for name in imports(tree) if name in FENCES and not path.startswith(FENCES[name])]
    if not path.startswith(FENCES["time"]):
        found += [n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in CLOCKS]
        found += [ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute) and _is_global_random(n)]
    return found


def _is_global_random(node: ast.Attribute) -> bool:
    return ast.unparse(node).startswith("np.random.") and node.attr not in (
        "Generator",
        "default_rng",
        "SeedSequence",
    )


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_no_module_crosses_a_fence(path: Path) -> None:
    assert trespasses(str(path.relative_to(SOURCE)), path.read_text()) == []


@pytest.mark.parametrize(
    "text",
    [
        "import numba",
        "from pyspark.sql import Row",
        "def f():\n    import asyncio",
        "datetime.now()",
        "np.random.rand()",
    ],
)
def test_the_fence_catches(text: str) -> None:
    assert trespasses("weft/algebra/box.py", text)


def test_a_fence_has_gaps_only_where_something_is() -> None:
    gaps = {gap for allowed in FENCES.values() for gap in allowed}
    assert [gap for gap in gaps if not (SOURCE / gap).exists()] == []


@pytest.mark.parametrize("text", ["import asyncio", "import time", "import socket", "from random import random"])
def test_the_fence_catches_a_session_that_is_not_sans_io(text: str) -> None:
    assert trespasses("weft/client/session.py", text)


def test_importing_weft_is_cheap() -> None:
    code = "import weft, sys; weft.matches(weft.parse('x > 5'), {'x': 6}); print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"numpy", "pyarrow", "numba", "pyspark", "starlette", "rich", "typer"}
    assert heavy.isdisjoint(loaded), "imported before it is used"


def test_every_exported_name_is_there() -> None:
    import weft

    for name in weft.__all__:
        assert getattr(weft, name) is not None
    assert set(weft.__all__) <= set(dir(weft))
    with pytest.raises(AttributeError, match="nothing"):
        _ = weft.nothing


def test_every_decision_has_a_number_of_its_own() -> None:
    text = (SOURCE.parent / "docs" / "decisions.md").read_text(encoding="utf-8").partition("\n## Dependencies")[0]
    numbers = [*map(int, re.findall(r"^(\d+)\. ", text, re.MULTILINE))]
    assert numbers == list(range(1, len(numbers) + 1)), "take the next number that is free"
