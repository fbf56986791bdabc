"""Faults planted into the driver: each breaks one of its rules, and the simulation must notice it.

A mutant patches one method. Those of NETWORK need several brokers to show.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from weft.broker.driver import CommitOutcome, Driver
from weft.broker.effects import Close, Persist, Send, SetTimer
from weft.protocol.link_messages import LinkMessage

Patch = pytest.MonkeyPatch
DRIVER_MUTANTS: dict[str, Callable[[Patch], None]] = {}
NETWORK_DRIVER_MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    DRIVER_MUTANTS[plant.__name__.replace("_", " ")] = plant
    return plant


def network_mutant(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    NETWORK_DRIVER_MUTANTS[plant.__name__.replace("_", " ")] = plant
    return plant


def _leave_out(patch: Patch, is_lost: Callable[[Driver, object], bool]) -> None:
    carry_out = Driver.carry_out

    def some(self, effects, now):
        carry_out(self, [effect for effect in effects if not is_lost(self, effect)], now)

    patch.setattr(Driver, "carry_out", some)


@mutant
def the_core_hears_of_a_commit_before_it_is_stored(patch: Patch) -> None:
    begin = Driver.begin_commit

    def early(self, most=None):
        taken = begin(self, most)
        for persist in taken:
            self.do(self.core.committed, persist.ticket)
        return taken

    def end(self, outcome):
        self.committing = []
        if outcome.full:
            self.waiting = []

    patch.setattr(Driver, "begin_commit", early)
    patch.setattr(Driver, "end_commit", end)


@mutant
def groups_are_committed_out_of_order(patch: Patch) -> None:
    begin = Driver.begin_commit

    def reversed_groups(self, most=None):
        self.waiting.reverse()
        return begin(self, most)

    patch.setattr(Driver, "begin_commit", reversed_groups)


@mutant
def a_group_that_waits_is_lost(patch: Patch) -> None:
    begin = Driver.begin_commit

    def forgetful(self, most=None):
        if len(self.waiting) > 1:
            self.waiting.pop()
        return begin(self, most)

    patch.setattr(Driver, "begin_commit", forgetful)


@mutant
def later_groups_are_kept_when_the_log_is_full(patch: Patch) -> None:
    end = Driver.end_commit

    def keeping(self, outcome):
        waiting = self.waiting if outcome.full else []
        end(self, outcome)
        self.waiting = [*waiting, *self.waiting] if outcome.full else self.waiting

    patch.setattr(Driver, "end_commit", keeping)


@mutant
def what_was_stored_before_the_log_was_full_counts_as_refused(patch: Patch) -> None:
    end = Driver.end_commit

    def harsh(self, outcome):
        end(self, CommitOutcome(outcome.groups, 0, outcome.full) if outcome.full else outcome)

    patch.setattr(Driver, "end_commit", harsh)


@mutant
def a_full_log_counts_as_stored(patch: Patch) -> None:
    end = Driver.end_commit

    def generous(self, outcome):
        end(self, CommitOutcome(outcome.groups, len(outcome.groups)))

    patch.setattr(Driver, "end_commit", generous)


@mutant
def a_send_is_dropped(patch: Patch) -> None:
    def every_tenth(self, effect):
        if not isinstance(effect, Send):
            return False
        self.sends = getattr(self, "sends", 0) + 1
        return self.sends % 10 == 0

    _leave_out(patch, every_tenth)


@mutant
def sends_of_a_turn_change_places(patch: Patch) -> None:
    carry_out = Driver.carry_out

    def mixed(self, effects, now):
        turned = [Send(e.connection, e.messages[::-1]) if isinstance(e, Send) else e for e in effects]
        carry_out(self, turned, now)

    patch.setattr(Driver, "carry_out", mixed)


@mutant
def the_timer_is_forgotten(patch: Patch) -> None:
    _leave_out(patch, lambda self, effect: isinstance(effect, SetTimer))


@mutant
def a_timer_is_set_once(patch: Patch) -> None:
    tick = Driver.tick

    def once(self):
        tick(self)
        self.due = 0  # as if it were still to come

    patch.setattr(Driver, "tick", once)


@mutant
def a_close_is_ignored(patch: Patch) -> None:
    _leave_out(patch, lambda self, effect: isinstance(effect, Close))


@mutant
def groups_that_are_not_urgent_are_never_stored(patch: Patch) -> None:
    _leave_out(patch, lambda self, effect: isinstance(effect, Persist) and not effect.urgent)


@mutant
def held_reads_are_forgotten(patch: Patch) -> None:
    handle_all = Driver.handle_all

    def careless(self):
        self.held, self._holding = [], set()
        handle_all(self)

    patch.setattr(Driver, "handle_all", careless)


@mutant
def a_connection_is_not_handled_in_order(patch: Patch) -> None:
    handle_all = Driver.handle_all

    def turned(self):
        self.held.reverse()
        handle_all(self)

    patch.setattr(Driver, "handle_all", turned)


@mutant
def a_connection_that_was_behind_is_never_read_again(patch: Patch) -> None:
    def deaf(self):
        self.due = None
        self.do(self.core.tick)

    patch.setattr(Driver, "tick", deaf)


@network_mutant
def a_link_loses_what_is_sent_now_and_then(patch: Patch) -> None:
    def some(self, effect):
        if not isinstance(effect, Send) or not isinstance(effect.messages[0], LinkMessage):
            return False
        self.sends = getattr(self, "sends", 0) + 1
        return self.sends % 7 == 0

    _leave_out(patch, some)
