"""Faults planted into the client: each breaks one promise to its application, and the simulation must notice it.

A mutant patches one method of the session that users run.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from weft.client.advertisements import AdvertState
from weft.client.effects import Answered, Missed, Stored
from weft.client.publisher import Publisher
from weft.client.session import ClientSession, _Deadline
from weft.client.subscription import AckBook, SubscriptionState
from weft.client.subscription_handle import Inbox
from weft.protocol.addresses import Address

Patch = pytest.MonkeyPatch
CLIENT_MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    CLIENT_MUTANTS[plant.__name__.replace("_", " ")] = plant
    return plant


# -- acknowledgements --------------------------------------------------------------------------------------


@mutant
def a_low_watermark_covers_what_the_application_has_not_acknowledged(patch: Patch) -> None:
    patch.setattr(AckBook, "_acked_below", lambda self: self._next)


@mutant
def an_acknowledged_event_is_shown_again_after_a_reconnection(patch: Patch) -> None:
    lost = AckBook.lost

    def forgetful(self):
        lost(self)
        self._settled.clear()

    patch.setattr(AckBook, "lost", forgetful)


@mutant
def acknowledgements_are_forgotten_when_they_are_sent(patch: Patch) -> None:
    remember = AckBook._remember

    def careless(self, messages):
        self._young = []
        remember(self, messages)

    patch.setattr(AckBook, "_remember", careless)


@mutant
def an_event_acknowledged_a_moment_ago_is_shown_again(patch: Patch) -> None:
    def blind(self):
        self._again = False
        return self._events.popleft() if self._events and not self._held else None

    patch.setattr(Inbox, "pop", blind)


@mutant
def what_the_broker_takes_back_is_shown_before_it_comes_again(patch: Patch) -> None:
    patch.setattr(AckBook, "_is_redelivery", lambda self, message: True)


@mutant
def what_is_behind_a_failed_event_is_shown(patch: Patch) -> None:
    nack = AckBook.nack

    def careless(self, offset, attempt, reason):
        nack(self, offset, attempt, reason)
        return set()

    patch.setattr(AckBook, "nack", careless)


# -- publishing --------------------------------------------------------------------------------------------


@mutant
def unconfirmed_events_are_forgotten_at_a_reconnection(patch: Patch) -> None:
    lost = Publisher.lost

    def forgetful(self):
        lost(self)
        self._events.clear()

    patch.setattr(Publisher, "lost", forgetful)


@mutant
def events_are_confirmed_when_they_are_sent(patch: Patch) -> None:
    received = ClientSession.received

    def hasty(self, connection, messages, now):
        sent = self.publisher._pop(self.publisher._first + self.publisher._sent - 1)
        return [*([Stored(sent)] if sent else []), *received(self, connection, messages, now)]

    patch.setattr(ClientSession, "received", hasty)


@mutant
def no_epoch_begins_after_a_refusal(patch: Patch) -> None:
    take = Publisher.take

    def stubborn(self, most=1 << 62):
        self._over = 0
        return take(self, most)

    patch.setattr(Publisher, "take", stubborn)


@mutant
def an_epoch_begins_before_what_was_sent_is_confirmed(patch: Patch) -> None:
    take = Publisher.take

    def hasty(self, most=1 << 62):
        self._over = self._over and self._first
        return take(self, most)

    patch.setattr(Publisher, "take", hasty)


@mutant
def stored_events_are_sent_again_under_new_numbers(patch: Patch) -> None:
    welcomed = Publisher.welcomed
    patch.setattr(Publisher, "welcomed", lambda self, epoch, stored, *, kept: welcomed(self, epoch, stored, kept=False))


@mutant
def a_refused_event_is_not_reported(patch: Patch) -> None:
    refused = Publisher.refused
    patch.setattr(Publisher, "refused", lambda self, message: refused(self, message) and None)


@mutant
def an_advertisement_is_not_made_again(patch: Patch) -> None:
    begin = AdvertState.begin
    patch.setattr(AdvertState, "begin", lambda self, *, kept: begin(self, kept=True))


# -- requests ----------------------------------------------------------------------------------------------


@mutant
def a_lost_subscription_is_not_made_again(patch: Patch) -> None:
    begin = SubscriptionState.begin

    def lazy(self, *, there, **more):
        return begin(self, there=there or self.was_here, **more)

    patch.setattr(SubscriptionState, "begin", lazy)


@mutant
def a_request_is_forgotten_at_a_reconnection(patch: Patch) -> None:
    welcomed = ClientSession._welcomed

    def forgetful(self, message):
        self._requests.clear()
        welcomed(self, message)

    patch.setattr(ClientSession, "_welcomed", forgetful)


@mutant
def a_request_is_answered_twice(patch: Patch) -> None:
    answered = ClientSession._answered

    def chatty(self, number, about, code, reason):
        answered(self, number, about, code, reason)
        self._effects += [each for each in self._effects if isinstance(each, Answered) and each.about != "complete"]

    patch.setattr(ClientSession, "_answered", chatty)


@mutant
def a_filter_of_before_is_not_asked_for_again(patch: Patch) -> None:
    message_of = SubscriptionState._message

    def stale(self, ask):
        return message_of(self, msgspec.structs.replace(ask, filter=self.filter or ask.filter))

    patch.setattr(SubscriptionState, "_message", stale)


@mutant
def a_revoked_subscription_goes_on(patch: Patch) -> None:
    patch.setattr(ClientSession, "_revoked", lambda self, number, reason: None)


@mutant
def lost_events_are_not_reported(patch: Patch) -> None:
    gap = ClientSession._gap

    def silent(self, queue, first, end):
        before = [*self._effects]
        gap(self, queue, first, end)
        self._effects = before + [each for each in self._effects[len(before) :] if not isinstance(each, Missed)]

    patch.setattr(ClientSession, "_gap", silent)


# -- connections -------------------------------------------------------------------------------------------


@mutant
def an_epoch_is_used_again(patch: Patch) -> None:
    hello = ClientSession._hello

    def old(self, credentials):
        said = hello(self, credentials)
        return msgspec.structs.replace(said, epoch=max(0, said.epoch - 1))

    patch.setattr(ClientSession, "_hello", old)


@mutant
def a_hello_without_an_answer_is_said_again_with_its_epoch(patch: Patch) -> None:
    hello = ClientSession._hello

    def stubborn(self, credentials):
        self._tries = 0
        return hello(self, credentials)

    patch.setattr(ClientSession, "_hello", stubborn)


@mutant
def a_silent_broker_is_waited_for_without_end(patch: Patch) -> None:
    opened = ClientSession.opened

    def patient(self, connection, now):
        effects = opened(self, connection, now)
        self._deadlines.pop(_Deadline.HELLO, None)
        return effects

    patch.setattr(ClientSession, "opened", patient)


@mutant
def a_dial_without_an_answer_is_waited_for_without_end(patch: Patch) -> None:
    dial = ClientSession._dial

    def patient(self, now):
        dial(self, now)
        self._deadlines.pop(_Deadline.DIAL, None)

    patch.setattr(ClientSession, "_dial", patient)


@mutant
def a_dead_connection_is_kept(patch: Patch) -> None:
    beat = ClientSession._beat

    def trusting(self, now):
        self._last_read = now
        beat(self, now)

    patch.setattr(ClientSession, "_beat", trusting)


@mutant
def a_redirect_to_plain_text_is_followed(patch: Patch) -> None:
    def trusting(self, text):
        self._redirect = Address.parse(text)

    patch.setattr(ClientSession, "_follow", trusting)


@mutant
def a_client_gives_up_when_a_connection_is_lost(patch: Patch) -> None:
    gone = ClientSession._gone

    def weary(self, error, now):
        self._fatal = self._fatal or error
        gone(self, error, now)

    patch.setattr(ClientSession, "_gone", weary)


@mutant
def a_client_fights_for_its_name(patch: Patch) -> None:
    bye = ClientSession._bye

    def stubborn(self, code, reason):
        bye(self, code, reason)
        if code == "taken over":
            self._fatal = None

    patch.setattr(ClientSession, "_bye", stubborn)
