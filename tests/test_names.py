"""Names of types: a public one is defined once in the whole source, so that it means one thing wherever it is read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src"
MAKERS = {"NewType", "TypeVar", "TypeAliasType", "NamedTuple", "namedtuple", "TypedDict", "Enum", "StrEnum", "IntEnum"}

# Names that are still defined twice, with their modules. Each has a definition in a package that is being rewritten:
# delete an entry as soon as one of its definitions has got a name of its own, or imports the other.
STILL_TWICE: dict[str, set[str]] = {}


def statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under `if` and `try` included."""
    for each in body:
        yield each
        if isinstance(each, ast.If):
            yield from statements([*each.body, *each.orelse])
        elif isinstance(each, ast.Try):
            yield from statements([*each.body, *each.orelse, *(line for case in each.handlers for line in case.body)])


def makes_a_type(value: ast.expr) -> bool:
    """Whether an expression can be a type: `A | B`, `A[B]`, `A`, `module.A`, `NewType(...)` and the like."""
    if isinstance(value, ast.Call):
        called = value.func
        return (called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")) in MAKERS
    if isinstance(value, ast.BinOp):
        return isinstance(value.op, ast.BitOr) and makes_a_type(value.left) and makes_a_type(value.right)
    if isinstance(value, ast.Constant):
        return value.value is None or isinstance(value.value, str)
    return isinstance(value, ast.Subscript | ast.Name | ast.Attribute)


def is_public_type_name(name: str) -> bool:
    """CapWords of more than one letter. (Type variables of one letter mean nothing beyond their signature.)"""
    return len(name) > 1 and name[0].isupper() and not name.isupper()


def type_names(text: str) -> set[str]:
    """The public types that a module defines: classes, new types, aliases and type variables."""
    found = set()
    for line in statements(ast.parse(text).body):
        if isinstance(line, ast.ClassDef):
            found.add(line.name)
        elif isinstance(line, ast.Assign) and makes_a_type(line.value):
            found |= {target.id for target in line.targets if isinstance(target, ast.Name)}
        elif isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and "TypeAlias" in ast.dump(line):
            found.add(line.target.id)
        elif type(line).__name__ == "TypeAlias":  # `type X = ...`, which the oldest Python of ours cannot read
            found.add(line.name.id)  # type: ignore[attr-defined]
    return {name for name in found if is_public_type_name(name)}


def defined_twice(texts: Mapping[str, str]) -> dict[str, set[str]]:
    """The names that two or more modules define, with the modules."""
    modules: dict[str, set[str]] = {}
    for path, text in texts.items():
        for name in type_names(text):
            modules.setdefault(name, set()).add(path)
    return {name: paths for name, paths in modules.items() if len(paths) > 1}


def test_every_public_type_name_is_defined_once() -> None:
    found = defined_twice({str(path.relative_to(SOURCE)): path.read_text() for path in SOURCE.rglob("*.py")})
    assert {name: paths for name, paths in found.items() if name not in STILL_TWICE} == {}
    assert found == STILL_TWICE, "delete what is defined once by now"


def test_each_kind_of_type_is_noticed() -> None:
    kinds = [
        "class Key: ...",
        "Key = NewType('Key', int)",
        "Key = int | None",
        "Key = 'Later' | None",
        "Key = dict[str, int]",
        "Key = Other",
        "Key = module.Other",
        "Key: TypeAlias = 'Later'",
        "Key = TypeVar('Key')",
        "if TYPE_CHECKING:\n    Key = int\nelse:\n    Key = object",
        "try:\n    class Key: ...\nexcept ImportError:\n    Key = None",
    ]
    for number, text in enumerate(kinds):
        assert defined_twice({"one": "class Key: ...", "other": text}) == {"Key": {"one", "other"}}, number


def test_other_things_may_share_a_name() -> None:
    for text in (
        "class _Key: ...",
        "KEY = int",
        "T = TypeVar('T')",
        "Key = make()",
        "def f():\n    Key = int",
        "Key = 3",
    ):
        assert defined_twice({"one": text, "other": text}) == {}, text
