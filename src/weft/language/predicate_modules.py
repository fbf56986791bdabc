"""The predicates that filters may call, by settings: Python modules that have some, and files with the hierarchy of
`is_a`.

Every door reads them here: the library, the command line, brokers, ring nodes and Spark. A module is named by an
operator, never by a client, and is imported once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from weft.errors import OptionError
from weft.language.predicate import Predicate, Predicates
from weft.language.taxonomy import IsA, Taxonomy

_LISTED = "PREDICATES"


def filter_predicates(modules: Iterable[str] = (), taxonomies: Sequence[str | Path] = ()) -> Predicates:
    """The predicates of modules, and `is_a` if there are files of a taxonomy, which together are one hierarchy.

    A module lists its predicates as `PREDICATES`; without that, all its predicates count. Raises OptionError or
    FilterError.

    >>> list(filter_predicates())
    []
    """
    known = Predicates()
    for name in modules:
        for predicate in _of_module(name):
            known.register(predicate)
    if taxonomies:
        known.register(IsA(Taxonomy.load(*taxonomies)))
    return known


def _of_module(name: str) -> list[Predicate]:
    try:
        module: Any = import_module(name)
    except Exception as error:
        raise OptionError(
            f"the module {name!r} of predicates cannot be imported: {type(error).__name__}: {error}; install it, or "
            "check its name"
        ) from error
    if hasattr(module, _LISTED):
        return [*getattr(module, _LISTED)]
    found = [each for each in vars(module).values() if isinstance(each, Predicate) and not isinstance(each, type)]
    if not found:
        raise OptionError(f"the module {name!r} has no predicates; list them as {_LISTED} = [...]")
    return found


def agreed_predicates(predicates: Predicates) -> tuple[str, ...]:
    """What two programs must agree on: the names, each with the digest of what it depends on, if it has one."""
    marks = ((name, getattr(predicates[name], "digest", "")) for name in sorted(predicates))
    return tuple(f"{name} {digest}" if digest else name for name, digest in marks)
