"""The CPU time of a broker's turns while it is asked questions: `python tools/question_turns.py [SUBSCRIPTIONS]`.

Half of the subscriptions belong to one session, the others to sessions of 500; as many sessions have none. The broker
has a neighbour, both are in memory, and every page of every list is asked for, up to a number. CPU time of one thread
is measured, so that other work on the machine counts for little. In the end, turns of publishing are compared with and
without questions.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random
from statistics import median
from time import thread_time
from typing import Any

import msgspec

from weft.broker.limits import ClientLimits
from weft.network.cores import BrokerNetwork, BrokerWork
from weft.protocol.messages import Answer, Failed, Publish, Question, SubNumber, Subscribe
from weft.protocol.questions import (
    AnyQuestion,
    AskItems,
    AskOrder,
    AskOverlay,
    AskRelated,
    AskRules,
    AskSessions,
    AskSubscriptions,
    AskSummary,
    AskTrace,
    AskWhy,
    FoundEvents,
    SearchEvents,
    encode_body,
    read_answer,
)
from weft.server.process import keep_pauses_short

MOST_PAGES = 1_000
TOGETHER = 500
LIMITS = ClientLimits(changes=1_000, subscriptions=10**6)


class Turns:
    """Brokers whose turns are measured."""

    def __init__(self, subscriptions: int) -> None:
        self.rng, self.turns = Random(3), list[float]()
        self.network = BrokerNetwork("a", "b", limits=LIMITS, run=self._run)
        self.network.link("a", "b")
        self.network.settle()
        node = self.node = self.network["a"]
        for first in range(0, subscriptions, TOGETHER):
            name = "big" if first < subscriptions // 2 else f"session {first}"
            if name not in node.core._sessions.by_name:
                node.hello(name)
            some = (Subscribe(SubNumber(first + each), self._filter()) for each in range(TOGETHER))
            node.say(name, *some)
            node.sent.clear()
        for number in range(subscriptions):
            node.core._sessions.add(f"away {number}", "")
        self.network.settle()
        node.hello("sensor")
        for first in range(0, 1_000, 50):
            node.say("sensor", *(Publish.of(first + each, self._event()) for each in range(1, 51)))
        node.hello("q", "")
        self.network.settle()
        keep_pauses_short()

    def _run(self, _: str, __: BrokerWork, work: Callable[[], Any]) -> Any:
        began = thread_time()
        found = work()
        self.turns.append(thread_time() - began)
        return found

    def _filter(self) -> str:
        event = self._event()
        below = f"magnitude >= {event['magnitude']:.3f} AND depth < {event['depth']}"
        return f"type = 'quake' AND {below} AND place = '{event['place']}'"

    def _event(self) -> dict[str, Any]:
        depth, place = self.rng.randint(1, 700), f"p{self.rng.randint(0, 2_000)}"
        return {"type": "quake", "magnitude": self.rng.random() * 9, "depth": depth, "place": place}

    def measure(self, name: str, question: AnyQuestion) -> None:
        """Ask for every page, and print what the turns took."""
        longest, rows, token = list[float](), 0, b""
        while len(longest) < MOST_PAGES:
            self.turns.clear()
            self.node.sent.clear()
            self.node.say("q", Question(1, encode_body(question), "", token))
            self.network.settle()
            (found,) = [each for to, each in self.node.sent if to == "q" and isinstance(each, Answer | Failed)]
            longest.append(1e3 * max(self.turns))
            if isinstance(found, Failed):
                print(name, found.reason)
                return
            answer, token = read_answer(found.body), found.page
            rows += len(getattr(answer, "rows", ()))
            if isinstance(answer, FoundEvents) and not answer.is_done:
                question = SearchEvents(question.filter, answer.next)  # type: ignore[union-attr, arg-type]
            elif not token:
                break
        longest.sort()
        figures = f"{len(longest):>6,} {rows:>8,} {median(longest):>8.2f} {longest[-1]:>8.2f}"
        print(f"{name:<34} {figures}", flush=True)

    def compare(self, rounds: int = 200) -> None:
        """Print the longest turns of publishing 50 events without questions, and between pages of lists, in turn."""
        questions: list[AnyQuestion] = [AskSubscriptions(text="'p1999'"), AskRelated("magnitude >= 8 AND place = 'p7'")]
        questions += [AskSessions("nobody"), AskItems("b")]
        tokens, longest = [b""] * len(questions), {"alone": list[float](), "with questions": list[float]()}
        sequence = 1_000
        for number in range(2 * rounds):
            asked, which = bool(number % 2), number // 2 % len(questions)
            self.turns.clear()
            self.node.sent.clear()
            if asked:
                question = Question(1, encode_body(questions[which]), "", tokens[which])
                self.node.say("q", question)
                self.network.settle()
                (found,) = [each for to, each in self.node.sent if to == "q" and isinstance(each, Answer | Failed)]
                tokens[which] = found.page if isinstance(found, Answer) else b""
            self.node.say("sensor", *(Publish.of(sequence + each, self._event()) for each in range(1, 51)))
            sequence += 50
            self.network.settle()
            longest["with questions" if asked else "alone"].append(1e3 * max(self.turns))
        print(f"longest turn of a round of publishing 50 events, {rounds} rounds each, ms of CPU")
        for name, turns in longest.items():
            turns.sort()
            print(
                f"{name:<34} median {median(turns):.2f}, 99% {turns[int(len(turns) * 0.99)]:.2f}, most {turns[-1]:.2f}"
            )


def main() -> None:
    """Print a line for each question."""
    subscriptions = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    turns = Turns(subscriptions)
    event = msgspec.Raw(msgspec.msgpack.encode({"type": "quake", "magnitude": 5.0, "depth": 3, "place": "p7"}))
    print(f"{subscriptions:,} subscriptions; longest turn for each page, ms of CPU")
    print(f"{'question':<34} {'pages':>6} {'rows':>8} {'median':>8} {'longest':>8}")
    for name, question in (
        ("summary", AskSummary()),
        ("sessions", AskSessions()),
        ("sessions, none has the name", AskSessions("nobody")),
        ("subscriptions", AskSubscriptions()),
        ("subscriptions, few have the text", AskSubscriptions(text="'p1999'")),
        ("items of a link", AskItems("b")),
        ("order", AskOrder()),
        ("related, few overlap", AskRelated("magnitude >= 8 AND place = 'p7'")),
        ("related, most overlap", AskRelated("magnitude >= 1")),
        ("search", SearchEvents("magnitude >= 8.5 AND place = 'p7'")),
        ("trace", AskTrace("big", event)),
        ("rules", AskRules("", "magnitude >= 5", bytes(event))),
        ("overlay", AskOverlay()),
        ("overlay, again", AskOverlay()),
        ("why, one subscription", AskWhy("big", SubNumber(77))),
        ("why, eight", AskWhy("big")),
        ("why, unknown", AskWhy("nobody")),
    ):
        turns.measure(name, question)
    turns.compare()


if __name__ == "__main__":
    main()
