"""A subscription between the application and its session. Law: every request is answered, at the latest when the
subscription ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from weft.broker.messages import DropDead, ListDead, RetryDead, SubNumber
from weft.errors import AccessError, ClientClosedError, FilterError, RequestError, WeftError
from weft.log.base import Offset
from weft.net.client_link import ClientLink
from weft.net.client_notices import Answered, Ended, Letters, Missed
from weft.net.client_subscription import SubscriptionOptions, SubscriptionRequest, SubscriptionState
from weft.net.inbox import Inbox, Settlement
from weft.net.open_requests import DeadRequest
from weft.net.waiters import Waiter, wake

MOST_EVENTS = 10_000  # that a subscription without a name holds for a slow application
MOST_BYTES = 16 << 20
_WINDOW = 1_000


class SubscriptionHandle:
    """One subscription. `own` if its session has no other purpose, `temporary` if it ends with the subscription."""

    def __init__(  # noqa: PLR0913 - the parts of a subscription
        self,
        link: ClientLink,
        number: SubNumber,
        filter: str,
        name: str,
        options: SubscriptionOptions,
        *,
        own: bool,
        temporary: bool,
        patience: float,
    ) -> None:
        self.link, self.number, self.name, self.own = link, number, name, own
        self.temporary = temporary
        self.filter = filter
        self.options = options
        self.resets = 0  # how often the broker had forgotten the subscription
        self._patience = patience
        session = link.session
        self._state = SubscriptionState(number, options, window=_WINDOW, token=session.token)
        self.inbox = Inbox(
            durable=options.durable,
            ordered=options.ordered and not options.share,
            most=options.lag or MOST_EVENTS,
            most_bytes=MOST_BYTES,
            decided=self._decided,
        )
        self._waiters: dict[Waiter, None] = {}  # of requests
        self._completing: list[Waiter] = []
        self._ending: Waiter | None = None  # waits until the broker has forgotten the session
        self.is_over = False
        self.is_leaving = False  # the application has left it
        self._error: WeftError | None = None

    # -- from the application ----------------------------------------------------------------------------------

    def begin(self, waiter: Waiter) -> None:
        """Subscribe; the waiter is finished when the broker has accepted it."""
        self.link.post(self._begin, waiter)

    def replace(self, waiter: Waiter, filter: str) -> None:
        """Change the filter."""
        self.link.post(self._ask, SubscriptionRequest("replace", filter, waiter))

    def unsubscribe(self, waiter: Waiter) -> None:
        """End the subscription for good, with its queue."""
        self.is_leaving = True
        self.link.post(self._unsubscribe, waiter)

    def complete(self, waiter: Waiter) -> None:
        """Wait until the subscription is active on every path."""
        self.link.post(self._complete, waiter)

    def leave(self) -> None:
        """The application does not want any more events; a durable subscription stays at the broker."""
        self.is_leaving = True
        self.inbox.end(None)
        with suppress(ClientClosedError):
            self.link.post(self._leave)

    def list_dead(self, waiter: Waiter, after: int, limit: int) -> None:
        """Ask for dead letters."""
        self.link.post(self._dead, "list", (), after, limit, waiter)

    def retry_dead(self, waiter: Waiter, offsets: Sequence[int]) -> None:
        """Deliver dead letters again."""
        self.link.post(self._dead, "retry", tuple(offsets), 0, 0, waiter)

    def drop_dead(self, waiter: Waiter, offsets: Sequence[int]) -> None:
        """Remove dead letters."""
        self.link.post(self._dead, "drop", tuple(offsets), 0, 0, waiter)

    def _decided(self, urgent: bool) -> None:
        with suppress(ClientClosedError):  # the broker delivers it again to whoever comes next
            if urgent:
                self.link.post(self.settle)
            else:
                self.link.post(self.link.later, self.settle)

    # -- in the network thread ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """Note what the application has decided."""
        self.inbox.settle(self._apply)

    def _apply(self, settlement: Settlement) -> set[int]:
        book = self._state.book
        withdrawn: set[int] = set()
        if book is not None:
            if settlement.acks:
                book.ack(settlement.acks)
            for offset, attempt, reason in settlement.nacks:
                withdrawn |= book.nack(offset, attempt, reason)
        return withdrawn

    def _begin(self, waiter: Waiter) -> None:
        if not self._refused(waiter):
            self._waiters[waiter] = None
            self.link.session.subscribe(self._state, SubscriptionRequest("subscribe", self.filter, waiter))
            self.link.start()

    def _ask(self, ask: SubscriptionRequest) -> None:
        waiter = ask.waiter
        assert isinstance(waiter, Waiter)
        if not self._refused(waiter):
            self._waiters[waiter] = None
            self.link.session.ask(self.number, ask)

    def _unsubscribe(self, waiter: Waiter) -> None:
        if self._refused(waiter):
            return
        self._waiters[waiter] = None
        if self.own and not self.options.share:
            self._ending = waiter
            self.link.close(self._patience, forget=True)
        else:
            self.link.session.ask(self.number, SubscriptionRequest("unsubscribe", "", waiter))

    def _complete(self, waiter: Waiter) -> None:
        if self._state.is_complete:
            waiter.finish()
            wake([waiter])
        elif not self._refused(waiter):
            self._completing.append(waiter)

    def _leave(self) -> None:
        if self.is_over:
            return
        self.settle()
        if self.own:
            self.link.close(self._patience, forget=self.temporary)
        elif self.number in self.link.session.subscriptions:
            self.link.session.leave(self.number)

    def _dead(self, what: str, offsets: tuple[int, ...], after: int, limit: int, waiter: Waiter) -> None:
        if self._refused(waiter):
            return
        self._waiters[waiter] = None
        dead, queue = self.link.session.dead, self._state.queue
        number, named = dead.number(), tuple(map(Offset, offsets))
        message: ListDead | RetryDead | DropDead
        if what == "list":
            message = ListDead(number, queue, Offset(after), limit)
        else:
            message = (RetryDead if what == "retry" else DropDead)(number, queue, named)
        dead.add(DeadRequest(message, self.number, waiter))

    def _refused(self, waiter: Waiter) -> bool:
        """Whether the subscription is over, and the waiter was told so."""
        if self.is_over:
            waiter.finish(error=self._error or ClientClosedError("the subscription is closed"))
            wake([waiter])
        return self.is_over

    def handle(self, notice: Answered | Ended | Missed) -> list[Waiter]:
        """What the session says. Returns the waiters that are finished."""
        if isinstance(notice, Missed):
            if notice.end:
                self.inbox.gaps.append((notice.first, notice.end))
            elif notice.count:
                self.inbox.dropped += notice.count
            else:
                self.resets += 1
            return []
        if isinstance(notice, Ended):
            return self.over(refusal(notice.code, notice.reason) if notice.code else None)
        if notice.about == "complete":
            done, self._completing = self._completing, []
            for each in done:
                each.finish()
            return done
        waiter = notice.waiter
        assert isinstance(waiter, Waiter)
        self._waiters.pop(waiter, None)
        waiter.finish(error=refusal(notice.code, notice.reason) if notice.code else None)
        done = [waiter]
        if notice.about == "subscribe" and notice.code:
            done += self.over(refusal(notice.code, notice.reason))
        return done

    def letters(self, notice: Letters) -> list[Waiter]:
        """An answer about dead letters."""
        waiter = notice.request.waiter
        assert isinstance(waiter, Waiter)
        self._waiters.pop(waiter, None)
        waiter.finish(notice.answer, refusal(notice.code, notice.reason) if notice.code else None)
        return [waiter]

    def over(self, error: WeftError | None) -> list[Waiter]:
        """Nothing more comes. Returns the waiters that are finished."""
        if self.is_over:
            return []
        self.is_over = self.is_leaving = True
        self._error = error
        self.inbox.end(None if isinstance(error, ClientClosedError) else error)
        done = [*self._waiters, *self._completing]
        self._waiters.clear()
        self._completing.clear()
        for waiter in done:
            gone = waiter is self._ending and self.link.is_forgotten
            waiter.finish(error=None if gone else error or ClientClosedError("the subscription is closed"))
        return done


def refusal(code: str, reason: str) -> WeftError:
    """The error of a request that the broker refused."""
    if code == "access":
        return AccessError(reason)
    if code == "filter":
        return FilterError(reason)
    return RequestError(reason, code)
