"""Access rules, which are filters.

Law: a principal may subscribe iff its rules together cover the filter, and publish iff one of its rules matches the
event. So whatever is delivered matches a rule of its subscriber.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain, product
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from weft.algebra.box import Box, NormalForm, universe
from weft.algebra.budget import Budget
from weft.algebra.relate import as_form, covers, overlaps
from weft.broker.personal_rules import is_personal, personal_texts
from weft.errors import AccessError, FilterTooComplexError
from weft.language.ast import Filter
from weft.language.meaning import matches
from weft.language.predicate import NO_PREDICATES, Predicates
from weft.language.text import parse
from weft.log.base import NEVER, Offset
from weft.model.event import Event
from weft.model.limits import LIMITS
from weft.model.schema import Schema

if TYPE_CHECKING:
    from weft.broker.sessions import ClientSubscription, Session

Right = Literal["status", "dead-letters", "history", "link", "operate"]  # what a principal may do besides

_RIGHTS: dict[Right, str] = {
    "status": "to read the broker's status",
    "dead-letters": "to list, retry or drop dead letters",
    "history": "to read older events with since=",
    "link": "to link a broker",
    "operate": "to disconnect clients, detach links or change subscriptions of others",
}
ALL_RIGHTS = frozenset(_RIGHTS)

_MOST_PERSONAL = 1_000  # principals without rules of their own whose rules are kept
_FAR = 1 << 20, 0  # when nothing could be compared


class Rights(NamedTuple):
    """What a principal may do: filters as texts, where None is anything, and the names of further rights."""

    subscribe: tuple[str, ...] | None = None
    publish: tuple[str, ...] | None = None
    further: frozenset[Right] = ALL_RIGHTS


NOTHING = Rights((), (), frozenset())


class Grant:
    """The rules of one principal, read.

    >>> grant = Grant(Rights(subscribe=("x < 5", "x >= 5 AND y = 1"), publish=()))
    >>> grant.check_subscribe(parse("x < 7 AND y = 1"))
    >>> grant.check_subscribe(parse("x < 7"))
    Traceback (most recent call last):
    ...
    weft.errors.AccessError: no rule allows all of x < 7; the nearest rule is x < 5
    """

    def __init__(self, rights: Rights, schema: Schema | None = None, predicates: Predicates = NO_PREDICATES) -> None:
        self.rights = rights
        self.reads_all = rights.subscribe is None  # whether every event may be delivered
        self.publishes_all = rights.publish is None  # whether every event may be published
        self._schema = schema
        self._subscribe = [parse(text, predicates) for text in rights.subscribe or ()]
        self._publish = [parse(text, predicates) for text in rights.publish or ()]
        self._forms = [as_form(rule, schema) for rule in self._subscribe]
        # side by side, not simplified together: so a principal may have any number of rules
        promises = (as_form(rule, schema) for rule in self._publish)
        self._publish_wide = NormalForm(tuple(chain.from_iterable(form.boxes for form in promises)), schema)
        self._wide = NormalForm(tuple(chain.from_iterable(form.boxes for form in self._forms)), schema)

    # -- subscribers ----------------------------------------------------------------------------------

    def check_subscribe(self, wanted: Filter) -> None:
        """Raise AccessError unless the rules cover a filter."""
        if self.reads_all:
            return
        form = as_form(wanted, self._schema)
        if covers(self._wide, form, self._schema):
            return
        if not self._subscribe:
            raise AccessError(f"no rule allows you to subscribe to {_short(wanted)}; ask the broker's operator for one")
        budget = Budget(LIMITS.steps // 10)  # of all rules together: it is a hint
        rules = zip(self._subscribe, self._forms, strict=True)
        near = min(rules, key=lambda rule: self._distance(rule[1], form, budget))[0]
        raise AccessError(f"no rule allows all of {_short(wanted)}; the nearest rule is {_short(near)}")

    def may_read(self, attributes: Mapping[str, Any]) -> bool:
        """Whether an event may be delivered: one of the rules matches it."""
        return self.reads_all or _any_matches(self._subscribe, attributes)

    def _distance(self, rule: NormalForm, wanted: NormalForm, budget: Budget) -> tuple[bool, tuple[int, int]]:
        """How far a rule is from covering: disjoint is farthest, then many conditions not met, then few met.

        When the budget is used up, the rest is not compared.
        """
        missing = [_FAR]
        try:
            for outer, inner in product(rule.boxes, wanted.boxes):
                missing.append(_missing(outer, inner, self._schema, budget))
        except FilterTooComplexError:
            return True, _FAR
        return not overlaps(rule, wanted, self._schema, budget), min(missing)

    # -- publishers -----------------------------------------------------------------------------------

    def check_publish(self, attributes: Mapping[str, Any]) -> None:
        """Raise AccessError unless a rule matches an event."""
        if not self.publishes_all and not _any_matches(self._publish, attributes):
            raise AccessError("no rule allows this event; publish only what your rules match")

    def check_advertise(self, promised: Filter) -> None:
        """Raise AccessError if no rule matches any event of an advertisement."""
        if not self.publishes_all and not any(overlaps(rule, promised, self._schema) for rule in self._publish):
            raise AccessError(f"no rule allows any event of {_short(promised)}; advertise what you may publish")

    def check_profile(self, region: Filter) -> None:
        """Raise AccessError unless the rules together match everything in the region of a profile."""
        if not self.publishes_all and not covers(self._publish_wide, as_form(region, self._schema), self._schema):
            raise AccessError(f"no rule allows all of {_short(region)}; publish a region that your rules cover")

    # -- the rest -------------------------------------------------------------------------------------

    def check(self, right: Right) -> None:
        """Raise AccessError unless the principal has a further right."""
        if right not in self.rights.further:
            raise AccessError(f"no rule allows you {_RIGHTS[right]}; ask the broker's operator for the right {right!r}")


class Rules:
    """The rules of all principals; `default` is for those that have none of their own.

    >>> rules = Rules({"analyst": Rights(publish=())}, default=NOTHING)
    >>> rules.of("analyst").publishes_all, rules.of("analyst") is rules.of("analyst")
    (False, True)
    >>> everybody = Rules(default=Rights(subscribe=("owner = '{me}'",)))
    >>> everybody.of("ann").rights.subscribe
    ("owner = 'ann'",)
    """

    def __init__(
        self,
        rights: Mapping[str, Rights] | None = None,
        default: Rights | None = None,
        schema: Schema | None = None,
        predicates: Predicates = NO_PREDICATES,
    ) -> None:
        self._schema, self._predicates = schema, predicates
        self._default = default or Rights()
        self.default = self._grant(self._default, "")
        self.grants = {principal: self._grant(each, principal) for principal, each in (rights or {}).items()}
        self.is_personal = is_personal(self._default.subscribe) or is_personal(self._default.publish)
        self._personal: dict[str, Grant] = {}  # the default for some principals, where it names whoever it is for

    def of(self, principal: str) -> Grant:
        """The rules of a principal. Cost: O(1), and that of reading them now and then, where rules have `{me}`."""
        known = self.grants.get(principal)
        if known is not None:
            return known
        if not self.is_personal:
            return self.default
        known = self._personal.pop(principal, None) or self._grant(self._default, principal)
        self._personal[principal] = known
        if len(self._personal) > _MOST_PERSONAL:
            del self._personal[next(iter(self._personal))]
        return known

    def _grant(self, rights: Rights, principal: str) -> Grant:
        subscribe = personal_texts(rights.subscribe, principal, self._predicates)
        publish = personal_texts(rights.publish, principal, self._predicates)
        return Grant(Rights(subscribe, publish, rights.further), self._schema, self._predicates)

    def principals(self) -> Iterable[str]:
        """Those that have rules of their own."""
        return sorted(self.grants)


class Access:
    """The rules in force in one broker, and the subscriptions that are still to be checked against them."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.unchecked: deque[tuple[Session | None, ClientSubscription]] = deque()  # None: of a shared queue

    def of(self, principal: str) -> Grant:
        """The rules of a principal."""
        return self.rules.of(principal)

    def recheck(self, session: Session | None, sub: ClientSubscription) -> None:
        """A subscription may not be allowed any more; until that is known, each event for it is checked."""
        self.unchecked.append((session, sub))
        sub.queue.recheck = Offset(NEVER)


def _any_matches(rules: list[Filter], attributes: Mapping[str, Any]) -> bool:
    event = Event(dict(attributes))
    return any(matches(rule, event) for rule in rules)


def _missing(outer: Box, inner: Box, schema: Schema | None, budget: Budget) -> tuple[int, int]:
    """How many conditions of one box another does not imply, and the negative number of those that it does."""
    budget.spend(1 + len(outer.sets))
    met = 0
    for name, values in outer.sets.items():
        met += values.covers(inner.sets.get(name) or universe(name, schema), budget)
    return len(outer.sets) - met + (not outer.residuals_implied_by(inner, budget)), -met


def _short(wanted: Filter) -> str:
    text = str(wanted)
    return text if len(text) <= 100 else text[:97] + "..."
