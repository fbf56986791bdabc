"""Properties of the client over random cuts: sans-IO, byte by byte, against a real broker core."""

from __future__ import annotations

from random import Random

import pytest

from client.client_lab import Lab, Line
from client.test_client_session import ONE, in_the_log, x_of
from weft.broker.limits import ClientLimits
from weft.client.effects import Arrived, Lost, Notice, Stored
from weft.client.events import outgoing
from weft.client.session import ClientSession
from weft.client.subscription import SubscriptionOptions, SubscriptionRequest, SubscriptionState

LIMITS = ClientLimits(window_events=7, backoff=2_000, failures=1_000_000, ack_delay=0)


class Application:
    """Publishes 0, 1, 2, ... by one client, and consumes them by another, whose connections are cut at random."""

    def __init__(self, seed: int, ordered: bool, share: bool) -> None:
        self.rng = Random(seed)
        self.lab = Lab(limits=LIMITS)
        self.publisher, self.consumer = ClientSession("publisher"), ClientSession("" if share else "consumer")
        options = SubscriptionOptions(durable=True, ordered=ordered, share="all" if share else "")
        self.state = SubscriptionState(ONE, options, window=7, token=self.consumer.token)
        self.consumer.subscribe(self.state, SubscriptionRequest("subscribe", "x >= 0", None))
        self.ordered, self.share = ordered and not share, share
        self.lines: dict[ClientSession, Line | None] = {self.publisher: None, self.consumer: None}
        self.published = self.confirmed = 0
        self.inbox: list[tuple[int, int, int]] = []  # (x, offset, attempt), not yet taken
        self.taken: list[tuple[int, int, int]] = []  # (x, offset, attempt), without an answer
        self.shown: dict[int, int] = {}  # how often
        self.acked: set[int] = set()
        for session in self.lines:  # a client whose first connection fails does not come back
            line = self.lines[session] = self.lab.connect(session)
            line.run()

    def handle(self, session: ClientSession, notices: list[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, Lost) and session is self.consumer:
                self.inbox.clear()  # as the client does: they come again
            if isinstance(notice, Stored):
                xs = [event.position for event in notice.events]
                assert xs == list(range(self.confirmed, self.confirmed + len(xs))), "confirmed out of order"
                self.confirmed += len(xs)
            elif isinstance(notice, Arrived):
                self.inbox += [(x_of(each), each.offset, each.attempt) for each in notice.messages]

    def step(self) -> None:
        rng = self.rng
        session = rng.choice([self.publisher, self.consumer])
        line = self.lines[session]
        if line is None or line.is_cut:
            self.lines[session] = self.lab.connect(session)
            return
        what = rng.random()
        if what < 0.25:
            line.flush()
            line.to_broker(rng.choice([1, 20, 1 << 30]))
        elif what < 0.5:
            self.handle(session, line.to_client(rng.choice([1, 50, 1 << 30])))
        elif what < 0.55:
            noticed = rng.random() < 0.8 or self.share  # a consumer of a shared queue has no name: it is not taken over
            self.handle(session, line.cut(noticed=noticed))
        elif what < 0.7:
            self.publish(rng.randrange(4))
        elif what < 0.75:
            self.lab.tick(rng.choice([100, 5_000]))
        elif what < 0.77:
            self.lab.commits = not self.lab.commits
        elif what < 0.775:
            self.lab.restart()
            self.inbox.clear()
        else:
            self.consume()
        self.consumer.check()
        self.publisher.check()

    def publish(self, count: int) -> None:
        events = [outgoing({"x": x}) for x in range(self.published, self.published + count)]
        for x, event in enumerate(events, self.published):
            event.position = x
        self.publisher.publisher.add(events)
        self.published += count

    def consume(self) -> None:
        book, rng = self.state.book, self.rng
        assert book is not None
        if self.inbox and rng.random() < 0.5:
            x, offset, attempt = self.inbox.pop(0)
            assert x not in self.acked, f"{x} was acknowledged, and returns"
            assert x not in self.shown or attempt > 1, f"{x} returns as if it were new"
            if self.ordered:
                before = [each for each in range(x) if each not in self.shown]
                assert not before, f"{x} is shown before {before}"
            self.shown[x] = attempt
            self.taken.append((x, offset, attempt))
        elif self.taken:
            x, offset, attempt = self.taken.pop(rng.randrange(len(self.taken)))
            if x in self.acked:
                return
            if rng.random() < 0.2:
                gone = book.nack(offset, attempt, "no")
                self.inbox = [each for each in self.inbox if each[1] not in gone]
            else:
                book.ack([offset])
                self.acked.add(x)
                self.inbox = [each for each in self.inbox if each[1] != offset]

    def finish(self) -> None:
        """No more cuts: everything must arrive."""
        self.lab.commits = True
        self.lab.commit()
        self.lab.notice()
        for _ in range(3_000):
            if self.confirmed == self.published and len(self.acked) == self.published:
                return
            for session in (self.publisher, self.consumer):
                line = self.lines[session]
                if line is None or line.is_cut:
                    line = self.lines[session] = self.lab.connect(session)
                line.flush()
                line.to_broker()
                self.handle(session, line.to_client())
            self.lab.tick(10_000)
            while self.inbox:
                x, offset, attempt = self.inbox.pop(0)
                assert x not in self.acked
                assert x not in self.shown or attempt > 1
                self.taken.append((x, offset, attempt))
            for x, offset, _ in self.taken:
                self.state.book.ack([offset])  # type: ignore[union-attr]
                self.acked.add(x)
            self.taken.clear()
        raise AssertionError(f"{self.confirmed} of {self.published} confirmed, {len(self.acked)} acknowledged")


@pytest.mark.parametrize("kind", ["ordered", "unordered", "shared"])
@pytest.mark.parametrize("seed", range(12))
def test_whatever_is_cut_nothing_is_lost_repeated_or_out_of_order(seed, kind, monkeypatch):
    if seed % 3 == 0:
        monkeypatch.setattr("weft.broker.hello.NEWEST", 2)  # a broker that does not say what it has stored
    world = Application(seed, ordered=kind == "ordered", share=kind == "shared")
    for _ in range(600):
        world.step()
    world.finish()
    assert in_the_log(world.lab) == list(range(world.published))
    world.lab.core.check()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 300))
def test_whatever_is_cut_for_long(seed):
    kind = ["ordered", "unordered", "shared"][seed % 3]
    world = Application(seed, ordered=kind == "ordered", share=kind == "shared")
    for _ in range(3_000):
        world.step()
    world.finish()
    assert in_the_log(world.lab) == list(range(world.published))
