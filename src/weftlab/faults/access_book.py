"""The access rules of a run, as its oracle knows them. It checks:

- Nothing is sent to a client that the rules of that instant do not let it read.
- A subscription is accepted only under rules that cover its filter, and refused only under rules that do not; the same
  holds for events and publishers. While a request is on its way the rules may change: then either answer is right.
- A subscription ends without its client only if rules that do not cover it have held; and it does end if they still do.

Once such rules have held, a subscription may end at any time, and nothing is required of it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from weft.broker.rules import Right, Rights, Rules
from weft.language.meaning import matches
from weft.language.text import parse
from weftlab.faults.shape import EVEN, EVENTS
from weftlab.faults.views import Logged

_FAR = 1 << 62


class RulesVersion(NamedTuple):
    """Rules that held for a while: `end` is the offset after the last event that was stored by then."""

    rights: Mapping[str, Rights]
    end: int = _FAR


class AccessBook:
    """All rules that have held, the present ones last. Without rules everything is allowed.

    >>> book = AccessBook()
    >>> book.change({"ann": Rights(subscribe=("x < 4",))}, next=5)
    >>> book.may_read("ann", {"x": 5}), book.covers("ann", "x = 3"), book.covers("ann", "TRUE", since=0)
    (False, {True}, {False, True})
    """

    def __init__(self) -> None:
        self._versions: list[RulesVersion] = [RulesVersion({})]

    @property
    def now(self) -> int:
        """The number of the present rules."""
        return len(self._versions) - 1

    @property
    def rules(self) -> Rules:
        """The present rules as a broker takes them."""
        return Rules(self._versions[-1].rights)

    def change(self, rights: Mapping[str, Rights], next: int) -> None:
        """Other rules hold from now on; `next` is the offset of the next event."""
        self._versions[-1] = self._versions[-1]._replace(end=next)
        self._versions.append(RulesVersion(rights))

    # -- readers -----------------------------------------------------------------------------------

    def may_read(self, principal: str, attributes: Mapping[str, object]) -> bool:
        """Whether the present rules let a principal read an event."""
        return _allowed(self._versions[-1].rights.get(principal, Rights()).subscribe, attributes)

    def withheld(self, principal: str, offset: int, event: Logged) -> bool:
        """Whether rules that have held since an event was stored keep it from a principal."""
        return any(
            not _allowed(version.rights.get(principal, Rights()).subscribe, event.attributes)
            for version in self._versions
            if offset < version.end
        )

    def covers(self, principal: str, text: str, since: int | None = None) -> set[bool]:
        """Whether rules cover a filter: the answers of all that have held since a version, or of the present ones."""
        return {_covers(each.subscribe, text) for each in self._rights(principal, since)}

    # -- publishers --------------------------------------------------------------------------------

    def allows(self, principal: str, attributes: Mapping[str, object], since: int) -> set[bool]:
        """Whether rules let a principal publish an event: the answers of all that have held since a version."""
        return {_allowed(each.publish, attributes) for each in self._rights(principal, since)}

    def forbids_all(self, principal: str, text: str, since: int) -> bool:
        """Whether some rules since a version allow no event of an advertisement."""
        promised = parse(text, EVEN)
        wanted = [event for event in EVENTS if matches(promised, event)]  # type: ignore[arg-type]
        rights = self._rights(principal, since)
        return any(not any(_allowed(each.publish, event) for event in wanted) for each in rights)

    def lacks(self, principal: str, right: Right, since: int) -> bool:
        """Whether a principal has not had a further right all the time since a version."""
        return any(right not in each.further for each in self._rights(principal, since))

    def _rights(self, principal: str, since: int | None) -> Iterable[Rights]:
        versions = self._versions[-1:] if since is None else self._versions[since:]
        return (version.rights.get(principal, Rights()) for version in versions)


def _allowed(rules: tuple[str, ...] | None, attributes: Mapping[str, object]) -> bool:
    return rules is None or any(matches(parse(rule), attributes) for rule in rules)  # type: ignore[arg-type]


def _covers(rules: tuple[str, ...] | None, text: str) -> bool:
    wanted = parse(text, EVEN)
    return rules is None or all(_allowed(rules, event) for event in EVENTS if matches(wanted, event))  # type: ignore[arg-type]
