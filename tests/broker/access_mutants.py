"""Holes planted into access control, each of which the law of access must find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from weft.algebra.relate import as_form, covers, overlaps
from weft.broker.delivery import Delivery
from weft.broker.queue import Queue
from weft.broker.revocation import Revocation
from weft.broker.rules import Access, Grant
from weft.broker.subscriptions import ClientSubscriptions
from weft.errors import AccessError
from weft.language.ast import Filter
from weft.language.text import parse
from weft.log.base import Offset

Plant = Callable[[pytest.MonkeyPatch], None]


def _deciding(allowed: Callable[[Grant, Filter], bool]) -> Plant:
    """Another rule for what a principal may subscribe to."""

    def check(self: Grant, wanted: Filter) -> None:
        if not self.reads_all and not allowed(self, wanted):
            raise AccessError("no")

    return lambda patch: patch.setattr(Grant, "check_subscribe", check)


def _one_rule_covers(grant: Grant, wanted: Filter) -> bool:
    return any(covers(form, as_form(wanted)) for form in grant._forms)


def _one_rule_overlaps(grant: Grant, wanted: Filter) -> bool:
    return any(overlaps(rule, wanted) for rule in grant._subscribe)


def _covered_the_wrong_way(grant: Grant, wanted: Filter) -> bool:
    return any(covers(as_form(wanted), form) for form in grant._forms)


def _first_box_is_covered(grant: Grant, wanted: Filter) -> bool:
    form = as_form(wanted)
    return covers(grant._wide, type(form)(form.boxes[:1], form.schema))


def _no_recheck_on_reload(patch: pytest.MonkeyPatch) -> None:
    def set_rules(self: Revocation, rules: Any) -> None:
        self._access.rules = rules

    patch.setattr(Revocation, "set_rules", set_rules)


def _no_recheck_of_what_waits(patch: pytest.MonkeyPatch) -> None:
    def recheck(self: Access, session: Any, sub: Any) -> None:
        self.unchecked.append((session, sub))

    patch.setattr(Access, "recheck", recheck)
    patch.setattr(Delivery, "may_read", lambda *_: True)


def _no_recheck_at_the_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Revocation, "restored", lambda _: None)


def _replace_unchecked(patch: pytest.MonkeyPatch) -> None:
    read = ClientSubscriptions.read_filter

    def read_filter(self: ClientSubscriptions, connection: Any, text: str) -> Filter:
        try:
            return read(self, connection, text)
        except AccessError:
            if connection.session.subs:
                return parse(text)
            raise

    patch.setattr(ClientSubscriptions, "read_filter", read_filter)


def _shared_names_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    known = Access.recheck

    def recheck(self: Access, session: Any, sub: Any) -> None:
        if session is not None:
            known(self, session, sub)

    patch.setattr(Access, "recheck", recheck)


def _what_is_held_is_not_purged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Revocation, "_purge", lambda *_: None)


def _trusted_before_the_last_is_checked(patch: pytest.MonkeyPatch) -> None:
    known = Revocation.step

    def step(self: Revocation, now: Any) -> None:
        known(self, now)
        for queue in self._queues.all:
            queue.recheck = Offset(0)

    patch.setattr(Revocation, "step", step)


def _dead_letters_are_shown(patch: pytest.MonkeyPatch) -> None:
    known = Delivery.may_read

    def may_read(self: Delivery, queue: Any, head: Any) -> bool:
        return (type(queue) is Queue and not queue.live) or known(self, queue, head)

    patch.setattr(Delivery, "may_read", may_read)


MUTANTS: dict[str, Plant] = {
    "the union of the rules is ignored": _deciding(_one_rule_covers),
    "the texts are compared": _deciding(lambda grant, wanted: wanted in grant._subscribe),
    "a rule that overlaps is enough": _deciding(_one_rule_overlaps),
    "the filter covers a rule": _deciding(_covered_the_wrong_way),
    "one alternative of the filter is enough": _deciding(_first_box_is_covered),
    "everybody may ask for everything": _deciding(lambda *_: True),
    "new rules do not end anything": _no_recheck_on_reload,
    "new rules do not apply to what waits": _no_recheck_of_what_waits,
    "new rules are not applied at the start": _no_recheck_at_the_start,
    "a replaced filter is not checked": _replace_unchecked,
    "new rules do not apply to shared names": _shared_names_are_forgotten,
    "what is held for a slow connection is not purged": _what_is_held_is_not_purged,
    "queues are trusted before the last subscription is checked": _trusted_before_the_last_is_checked,
    "queues that are behind are not checked": _dead_letters_are_shown,
}
