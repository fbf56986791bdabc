"""Access rules that name whoever they are for: `{me}` inside a string or a quoted name is the principal.

`owner = '{me}'` and `"to.{me}" = TRUE` are rules for everybody, each for their own events. The name is substituted in
the tree of the filter, not in its text: no name makes another filter of it, whatever characters it has. In a pattern of
LIKE it stands for itself, `%` and `_` in it included.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

from weft.errors import FilterError
from weft.language.ast import AttributeRef, Filter, Like
from weft.language.constant import Constant
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.model.value import Type

ME = "{me}"
_ESCAPES = "\\!~^|#"  # of which one is not in a pattern, or else the first private character is used


def is_personal(texts: tuple[str, ...] | None) -> bool:
    """Whether some of these rules name whoever they are for."""
    return any(ME in text for text in texts or ())


def personal_texts(
    texts: tuple[str, ...] | None, principal: str, predicates: Predicates = NO_PREDICATES
) -> tuple[str, ...] | None:
    """The rules for one principal. A rule that names nobody is left out: so it allows nothing.

    >>> personal_texts(("owner = '{me}'", "x > 5"), "o'neil")
    ("owner = 'o''neil'", 'x > 5')
    >>> personal_texts(('"to.{me}" = TRUE', "path LIKE '{me}/%'"), "a_b")
    ('to.a_b = TRUE', "path LIKE 'a\\\\_b/%' ESCAPE '\\\\'")
    """
    if texts is None or not is_personal(texts):
        return texts
    found = []
    for text in texts:
        if ME not in text:
            found.append(text)
        elif principal:
            try:
                found.append(str(_named(parse(text, predicates), principal)))
            except FilterError:  # no filter can have this name
                continue
    return tuple(found)


def _named(part: Any, name: str) -> Any:
    """A part of a filter with a name in place of the placeholder."""
    if isinstance(part, tuple):
        return tuple(_named(each, name) for each in part)
    if isinstance(part, Constant):
        return Constant(Type.STRING, part.value.replace(ME, name)) if isinstance(part.value, str) else part
    if isinstance(part, AttributeRef):
        return AttributeRef(part.name.replace(ME, name))
    if isinstance(part, Like):
        return _pattern(replace(part, left=_named(part.left, name)), name)
    if not isinstance(part, Filter) or not is_dataclass(part):
        return part
    return replace(part, **{each.name: _named(getattr(part, each.name), name) for each in fields(part) if each.init})


def _pattern(like: Like, name: str) -> Like:
    if ME not in like.pattern:
        return like
    escape = like.escape
    if escape is None and any(sign in name for sign in "%_"):
        escape = next((sign for sign in _ESCAPES if sign not in like.pattern), "\ue000")
    literal = "".join(f"{escape}{sign}" if sign in ("%", "_", escape) else sign for sign in name)
    return Like(like.left, like.pattern.replace(ME, literal), escape, like.ignore_case)
