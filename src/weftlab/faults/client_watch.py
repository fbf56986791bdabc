"""The checks of what one client sends and receives. An answer is right if it was right at some time since the request
was sent.

A client does not know when exactly its broker decided. What was sent earlier may be there or not, the access rules may
have changed on the way, and the answer may be lost: until it is known, the filter before and the one after may both be
in force.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from weft.broker.effects import ConnectionId
from weft.language.text import parse
from weft.protocol import messages as protocol
from weft.protocol.messages import Advertise, Deliver, Replace, SubNumber, Subscribe, Unadvertise, Unsubscribe
from weftlab.faults.shape import EVEN
from weftlab.faults.views import AdvertView, FilterVersion, LossyView, QueueView, SubView
from weftlab.faults.violation import require

if TYPE_CHECKING:
    from weftlab.faults.client import SimClient

SHARE = "workers"  # the name of the queue that clients share
SHARED = SubNumber(900)  # the number of the shared subscription in each session
FINAL = ("access", "limit")  # codes of refusals that asking again does not help against
_LONG = 1 << 30  # a lag that no queue reaches
AnyRequest = Subscribe | Replace | Unsubscribe | Advertise | Unadvertise


class SentRequest(NamedTuple):
    """A request on its way."""

    message: AnyRequest
    rules: int  # the access rules when it was sent
    version: FilterVersion | None  # of the subscription that it is about


class ClientWatch:
    """Follows the requests of one client and judges the answers; keeps its views for the oracle."""

    def __init__(self, client: SimClient) -> None:
        self.session = 0  # the id that the broker gave it, as far as the client knows
        self.forgetting = False  # the client has asked that the session be removed
        self.left_at = 0  # when the last connection ended on which it was welcome
        self._gone = False  # the client knows that the session is removed
        self._there: set[SubNumber] = set()  # subscriptions that the broker has, as this connection was told
        self.owed: set[tuple[str, SubNumber]] = set()  # what the application must learn at once
        self._client, self._views = client, client.views
        self._asked: dict[tuple[str, int], SentRequest] = {}  # on this connection, without an answer

    # -- what the client sends -------------------------------------------------------------------------

    def sent(self, message: protocol.ClientMessage) -> None:
        """The client sends a message."""
        match message:
            case Subscribe():
                self._subscribe(message)
            case Replace(number, text):
                known = number in self._views.subs
                require(known, f"{self._client.name} replaces subscription {number}, which the broker does not have")
                self._views.subs[number].versions.append(FilterVersion(parse(text, EVEN), self._client.oracle.next))
            case Unsubscribe(number):
                self._unsubscribe(number)
            case protocol.NewEpoch():
                self._client.trace.count("op: new publisher epoch")
            case Advertise(number, text):
                self._views.adverts.setdefault(number, AdvertView(parse(text, EVEN)))
            case Unadvertise(number):
                advert = self._views.adverts[number]
                advert.until = min(advert.until, self._client.oracle.assigned)
        if isinstance(message, AnyRequest):
            about = type(message).__name__.lower()
            sub = self._views.subs.get(SubNumber(message.number))
            version = None if sub is None or "advertise" in about else sub.versions[-1]
            self._asked[about, message.number] = SentRequest(message, self._client.book.now, version)

    def _subscribe(self, message: Subscribe) -> None:
        """A subscription is wanted. A consumer of a shared queue subscribes on each connection."""
        views, number = self._views, message.number
        old = views.subs.get(number)
        if message.share and old is not None and not old.ended:
            return
        if old is not None:
            views.drop(old)
        following = self._client.oracle.next
        # a shared queue may have been there before
        low = 0 if message.share else min(self._first(message, following), following)
        durable = message.durable is not False
        sub = SubView(number, message.queue, durable, [FilterVersion(parse(message.filter, EVEN), low)])
        sub.replays = _replays(message)
        views.subs[number] = sub
        if durable:
            self._adopt(message).subs.append(sub)

    def _first(self, message: Subscribe, end: int) -> int:
        """The first event that a new subscription begins with, if one before `end` is old enough."""
        if message.since_time is not None:
            return self._client.oracle.find(message.since_time) or end
        return end if message.since is None else message.since

    def _adopt(self, message: Subscribe) -> QueueView:
        """The queue of a new subscription."""
        known = self._views.queues.get(message.queue)
        if known is not None and not all(sub.ended for sub in known.subs):
            return known
        client = self._client
        view = client.shared if message.share else client.oracle.view()
        self._views.queues[message.queue] = view
        view.ordered, view.shared = message.ordered and not message.share, bool(message.share)
        view.principal, most = client.principal, client.limits.lag
        view.lag = most if message.disconnect else min(message.lag or most, most)
        view.lag = view.lag if view.lag < _LONG else 0
        return view

    def _unsubscribe(self, number: SubNumber) -> None:
        sub = self._views.subs[number]
        sub.versions.append(FilterVersion(None, self._client.oracle.next))
        if number == SHARED:  # with its last consumer a shared queue ends, also for those who are away
            for each in self._views.queues[sub.queue].subs:
                each.doubtful = True
        self._end_queue(sub)

    def _end_queue(self, sub: SubView) -> None:
        """A queue without subscriptions ends; one with its number may begin later."""
        view = self._views.queues.get(sub.queue)
        if view is not None:
            view.held.clear()  # what failed may have been this subscription's alone
            if all(each.ended for each in self._views.subs.values() if each.queue == sub.queue):
                view.drop(set(self._client.oracle.history))

    # -- what the broker answers -----------------------------------------------------------------------

    def received(self, connection: ConnectionId, message: protocol.BrokerMessage) -> None:
        """The client receives a message."""
        client, trace, views = self._client, self._client.trace, self._views
        match message:
            case protocol.Welcome():
                self._welcomed(message)
            case Deliver():
                self._delivered(connection, message)
            case protocol.Accepted():
                self._accepted(message)
            case protocol.Failed():
                self._failed(message)
            case protocol.Gap(queue, first, end):
                trace.count("gap")
                client.oracle.gap(client.name, views.queues[queue], first, end)
                sub = views.subs.get(SubNumber(queue))
                if sub is not None and not sub.ended:
                    self.owed.add((f"that events {first} to {end} are lost to it", sub.number))
            case protocol.Dropped(queue, count):
                trace.count("dropped", count)
                require(count > 0, f"{client.name}: nothing was dropped from queue {queue}")
                views.lossy.setdefault(queue, LossyView()).dropped += count
            case protocol.Revoked(number):
                sub = views.subs.get(number)
                if sub is not None and number in self._there and not sub.ended:  # otherwise an older one is meant
                    self._end(sub)
                    self.owed.add(("its end", sub.number))
            case protocol.Bye(code):
                trace.count(f"bye: {code}")
                self._gone = code == "forgotten"

    def _answered(self, message: protocol.Accepted | protocol.Failed, how: str) -> SentRequest:
        """The request that an answer is about."""
        about, number = message.about, message.number
        sent = self._asked.pop((about, number), None)
        require(sent is not None, f"{self._client.name}: {about} {number} {how}, and was not requested")
        assert sent is not None
        return sent

    def _accepted(self, message: protocol.Accepted) -> None:
        """A request is done: from now on it is known where a filter came into force."""
        views, sent = self._views, self._answered(message, "is accepted")
        asked, version = sent.message, sent.version
        self._judge_accepted(sent)
        match asked:
            case Advertise(number):
                views.adverts[number].accepted = True
                return
            case Unadvertise(number):
                views.adverts[number].gone = True
                return
            case Subscribe(number):
                self._there.add(number)
            case Unsubscribe(number):
                self._there.discard(number)
                self._end_queue(views.subs[number])
        sub = views.subs[SubNumber(message.number)]
        assert version is not None
        if isinstance(asked, Subscribe) and sub.replays:
            oldest = views.queues[sub.queue].begins = self._oldest()
            version.high = min(max(self._first(asked, message.offset), oldest), message.offset)
        elif isinstance(asked, Subscribe) and asked.share:
            version.high = min(version.high, message.offset)
        else:
            version = self._in_force_before(sub, version, message.offset)
            what = f"{self._client.name}: {message.about} holds from {message.offset}, before it was requested"
            require(message.offset >= version.low, what)
            version.high = min(version.high, message.offset)
            # others hold at once: events on their way that are not stored give their offsets to others
            if sub.durable and not (sub.replays and version is sub.versions[0]):
                version.low = message.offset

    @staticmethod
    def _in_force_before(sub: SubView, version: FilterVersion, offset: int) -> FilterVersion:
        """The version that an answer is about: an earlier one, if that had the same filter and holds since then."""
        at = next(at for at, each in enumerate(sub.versions) if each is version)
        earlier = [each for each in range(at) if sub.versions[each].filter == version.filter]
        if offset >= version.low or not earlier:
            return version
        for each in sub.versions[earlier[-1] + 1 : at + 1]:  # the broker never received those in between
            each.filter, each.high = version.filter, each.low
        return ClientWatch._in_force_before(sub, sub.versions[earlier[-1]], offset)

    def _oldest(self) -> int:
        """The oldest event in the broker's log."""
        broker = self._client.broker
        return broker.log.restore().first if broker.core is not None else self._client.oracle.next

    def _failed(self, message: protocol.Failed) -> None:
        """A request changed nothing."""
        self._client.trace.count(f"failed: {message.about} {message.code}")
        if message.about not in {"subscribe", "replace", "unsubscribe", "advertise", "unadvertise"}:
            return
        views, sent = self._views, self._answered(message, "failed")
        asked = sent.message
        if message.code in FINAL:
            self._judge_failed(sent, message.code)
        match asked:
            case Subscribe(number):
                if not asked.share or message.code != "full":
                    views.drop(views.subs.pop(number))
            case Replace(number) | Unsubscribe(number):
                versions = views.subs[number].versions
                versions[:] = [each for each in versions if each is not sent.version]
                if message.code == "unknown":
                    self._there.discard(number)
                    if not views.subs[number].ended:
                        self._end(views.subs[number])
            case Advertise(number) if message.code in FINAL:
                del views.adverts[number]
                self._client.adverts.granted.pop(number, None)

    def _judge_accepted(self, sent: SentRequest) -> None:
        """A request was granted: within the limits and the access rules?"""
        client, asked = self._client, sent.message
        what = f"{client.name}: {type(asked).__name__} {asked.number} is accepted"
        if isinstance(asked, Subscribe | Replace):
            covered = True in client.book.covers(client.principal, asked.filter, sent.rules)
            require(covered, f"{what}, and the rules do not allow {asked.filter}")
        if isinstance(asked, Subscribe):
            others = (asked.number, SHARED)
            surely = [sub for sub in self._views.subs.values() if sub.stays and sub.number not in others]
            most = client.limits.subscriptions
            require(len(surely) < most, f"{what} in addition to {len(surely)}, and {most} are allowed")

    def _judge_failed(self, sent: SentRequest, code: str) -> None:
        """A request was refused for good: because of a limit or the access rules?"""
        client, views, (asked, rules, _) = self._client, self._views, sent
        what = f"{client.name}: {type(asked).__name__} {asked.number} failed: {code}"
        if code == "limit":
            subs = [sub for sub in views.subs.values() if not sub.gone]  # with the one that is asked for
            reached = len(subs) > client.limits.subscriptions or len({sub.queue for sub in subs}) > client.limits.queues
            if isinstance(asked, Advertise):
                reached = sum(not advert.gone for advert in views.adverts.values()) > client.limits.adverts
            require(reached, f"{what}, and the limit is not reached")
            return
        book, who = client.book, client.principal
        if isinstance(asked, Advertise):
            require(book.forbids_all(who, asked.filter, rules), f"{what}, and the rules allow some of it")
            return
        assert isinstance(asked, Subscribe | Replace)
        older = isinstance(asked, Subscribe) and _replays(asked)
        right = False in book.covers(who, asked.filter, rules) or (older and book.lacks(who, "history", rules))
        require(right, f"{what}, and the rules allow {asked.filter}")

    def _end(self, sub: SubView) -> None:
        """A subscription has ended without the client."""
        require(sub.doubtful, f"{self._client.name}: subscription {sub.number} ended, and the rules allow it")
        self._client.trace.count("revoked")
        sub.versions.append(FilterVersion(None, 0))
        self._end_queue(sub)

    def doubt(self) -> None:
        """The access rules have changed: what they do not cover may end at any time."""
        client = self._client
        for sub in self._views.subs.values():
            texts = [str(version.filter) for version in sub.versions[sub.answered :] if version.filter is not None]
            if any(False in client.book.covers(client.principal, text) for text in texts):
                sub.doubtful = True

    # -- deliveries ------------------------------------------------------------------------------------

    def _delivered(self, connection: ConnectionId, message: Deliver) -> None:
        """An event comes over the wire."""
        client, views = self._client, self._views
        subs = [sub for sub in views.subs.values() if sub.queue == message.queue]
        if message.queue not in views.queues:
            self._delivered_once(message, subs)
            return
        if not message.offset:
            client.trace.count("delivered: not durable, into a durable queue")
            client.oracle.delivered_once(client.name, message, subs)
            return
        client.trace.count("delivered")
        if message.attempt > 1:
            client.trace.count("delivered again")
        view = views.queues[message.queue]
        client.oracle.delivered(connection, message, subs, view)

    def _delivered_once(self, message: Deliver, subs: list[SubView]) -> None:
        """An event of a queue that is not durable."""
        name, views, oracle = self._client.name, self._views, self._client.oracle
        self._client.trace.count("delivered: not durable")
        for number in message.numbers:
            require(number in views.subs, f"{name}: a delivery for unknown subscription {number}")
        oracle.delivered_once(name, message, subs)
        view = views.lossy.setdefault(message.queue, LossyView())
        if message.offset:
            require(message.offset > view.highest, f"{name}: {message.offset} comes after {view.highest}")
            view.highest = message.offset
            view.got.add(message.offset)
        uid = bytes(message.payload).decode()
        once = (message.queue, uid)
        again = once in views.once and uid not in oracle.repeats
        require(not again, f"{name}: {uid} was delivered twice to queue {message.queue}")
        views.once.add(once)

    # -- connections -----------------------------------------------------------------------------------

    def _welcomed(self, message: protocol.Welcome) -> None:
        """Compare what the broker has with what was accepted."""
        views, oracle, name = self._views, self._client.oracle, self._client.name
        self._asked.clear()
        fresh = message.session != self.session
        require(fresh or not self._gone, f"{name}: the session is there after it was removed")
        require(message.resumed or fresh, f"{name}: a session that is there is called a new one")
        if self.session and fresh and message.resumed:
            self._client.trace.count("op: session of another process")
        if self.session and fresh and not self._client.anonymous:
            right = self.forgetting or self._may_have_expired
            require(right, f"{name}: the session is gone, and nobody removed it")
            self._client.trace.count("op: session begun anew" if self.forgetting else "op: session has expired")
        if fresh and self.session:
            views.begin_anew(SHARED)
        self.session, self.forgetting, self._gone = message.session, False, False
        there = self._there = set(message.subscriptions)
        unknown = there - views.subs.keys()
        require(not unknown, f"{name}: the broker has subscriptions {sorted(unknown)}, which nobody asked for")
        views.lossy.clear()
        for number in [number for number, sub in views.subs.items() if not sub.durable and number not in there]:
            del views.subs[number]  # it has ended with its connection
        for number, sub in views.subs.items():
            first, last = sub.versions[0], sub.versions[-1]
            if number in there and not sub.accepted:  # it was done, and the answer was lost
                first.high = oracle.next
                if sub.replays:
                    views.queues[sub.queue].begins = self._oldest()
            if sub.ended and number not in there:
                last.high = min(last.high, oracle.next)
            if sub.durable and sub.accepted and not sub.ended and number not in there and number != SHARED:
                require(sub.doubtful, f"{name}: subscription {number} was accepted, and is lost")
                self._end(sub)

    @property
    def _may_have_expired(self) -> bool:
        """Whether it was away for as long as its session is kept: by a clock that may jump, but at least a second."""
        client, limits = self._client, self._client.limits
        keep = min(client.terms.keep * 1_000_000 or limits.expires, limits.expires or 1 << 62)
        away = client.engine.now - self.left_at
        return bool(keep) and away >= (1_000_000 if client.broker.jumped else keep)


def _replays(message: Subscribe) -> bool:
    """Whether it asks for older events."""
    return message.since is not None or message.since_time is not None
