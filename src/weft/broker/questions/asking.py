"""Questions of clients: who may ask what, and which broker answers.

A question changes nothing, unless it is an operation. An answer takes a bounded amount of work and has a bounded number
of rows; a turn answers one question of a client, and one of a neighbour. A question to another broker is relayed behind
whatever was sent before, and answered by a sentence if no answer comes in time. Two questions concern the whole network
(`AskOverlay`, `AskWhy`): the broker that is asked leads, asks the others, and answers when all have answered or are
late.

Both brokers apply their access rules to the principal who asks. A broker of an older version drops a question. It is
told from one that is merely slow by a second message, which every version answers: where an empty event would go. A
broker that answers only that does not know questions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from weft.broker.effects import Now
from weft.broker.explain import Explainer, HopQuestion
from weft.broker.history import HistoryReads
from weft.broker.ingest import Ingest
from weft.broker.limits import REFUSALS, RefusalError, refusal_code
from weft.broker.links.links import Links
from weft.broker.parts import BrokerParts
from weft.broker.profiles.notices import ProfileNotices
from weft.broker.questions.contents import Contents
from weft.broker.questions.listings import Listings, ListProgress, MakePage, Page
from weft.broker.questions.operations import Asker, Operations
from weft.broker.questions.why import WhyDraft, WhyFindings
from weft.broker.sessions import Connection
from weft.errors import RemoteProtocolError
from weft.protocol.codec import MAX_FRAME
from weft.protocol.link_messages import LinkRelay, RelayKind
from weft.protocol.messages import Answer, Failed, Head, Question
from weft.protocol.questions import (
    MOST_QUESTION,
    MOST_TOKEN,
    AnyAnswer,
    AnyQuestion,
    AskBalance,
    AskItems,
    AskMatches,
    AskOrder,
    AskOverlay,
    AskProfiles,
    AskReach,
    AskRelated,
    AskRules,
    AskSessions,
    AskSubscriptions,
    AskSummary,
    AskTrace,
    AskWhy,
    BrokerReach,
    BrokerSummary,
    ItemList,
    Operation,
    OrderList,
    OverlayList,
    ProfileList,
    RecentMatches,
    SearchEvents,
    SessionList,
    SubscriptionList,
    encode_body,
    read_answer,
    read_question,
)
from weft.routing.item_text import shortened
from weft.routing.table import Link

_MOST_OPEN = 32  # questions of clients that wait for other brokers
_MOST_WAITING = 256  # questions of other brokers that wait for their turn
_MOST_BROKERS = 256  # that are asked for one answer
_MOST_KNOWING = 10_000  # brokers that are remembered to answer questions
_MOST_NAME = 256  # characters of a broker's name
_MOST_BYTES = MAX_FRAME - (1 << 13)  # of an answer; the rest of a frame is for what is around it
_MOST_SUMMARY = 1 << 15  # bytes of what another broker tells of itself: a frame has room for 32 of the longest
_MOST_REASON = 1_000  # characters of a refusal
# what anybody may ask about one's own things, without any right
_OWN = (AskSessions, AskSubscriptions, AskProfiles, AskRelated, AskReach, AskRules, AskTrace, AskWhy)
_encode = msgspec.msgpack.Encoder().encode
_EMPTY_EVENT = _encode(Head({}))


class RelayedQuestion(msgspec.Struct, frozen=True, array_like=True, tag="question"):
    """A question of another broker's client. Older brokers cannot read it, because it begins with a text."""

    number: int
    principal: str
    body: bytes
    page: bytes = b""


class RelayedAnswer(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    """Its answer; with a code if it is refused. Without a body and a code, it has arrived, and the answer follows."""

    number: int
    body: bytes = b""
    page: bytes = b""
    code: str = ""
    reason: str = ""


_relayed: msgspec.msgpack.Decoder[RelayedQuestion | RelayedAnswer] = msgspec.msgpack.Decoder(
    RelayedQuestion | RelayedAnswer
)
_MARKS = tuple(_encode(tag) for tag in ("question", "answer"))


def is_question_relay(message: LinkRelay) -> bool:
    """Whether a relayed message is a question or an answer of this module, not of `explain`."""
    return message.body[1:].startswith(_MARKS)


@dataclass(slots=True)
class _Inquiry:
    """A question that waits for other brokers."""

    asker: Asker
    question: AnyQuestion
    own: AnyAnswer | WhyDraft | None = None  # what this broker has found
    pending: dict[str, None] = field(default_factory=dict)  # brokers that have not answered
    answers: dict[str, AnyAnswer | RefusalError | str] = field(default_factory=dict)  # a text is why there is none
    token: bytes = b""  # of the next page, at the other broker


class Questions:
    """Answers the questions of clients and of other brokers."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that it asks
        self,
        parts: BrokerParts,
        ingest: Ingest,
        links: Links,
        history: HistoryReads,
        explainer: Explainer,
        operations: Operations,
        notices: ProfileNotices,
    ) -> None:
        self._sessions, self._access, self._out, self._timers = parts.sessions, parts.access, parts.out, parts.timers
        self._limits, self._counts, self._journal = parts.limits, parts.counts, parts.journal
        self._ingest, self._links, self._reach, self._history = ingest, links, links.reach, history
        self._operations, operations.reply, explainer.probed = operations, self.reply, self._probed
        self._contents = Contents(parts, links, notices)
        self._why = WhyFindings(parts, links, self._contents, ingest)
        self._listings = Listings(parts.journal.incarnation)
        self._numbers = 0
        self._open: dict[int, _Inquiry] = {}
        self._knowing: set[str] = set()  # brokers that have answered a question
        self.waiting: deque[tuple[str, RelayedQuestion]] = deque()  # questions of other brokers, one for each turn

    # -- of clients ---------------------------------------------------------------------------------------

    def ask(self, connection: Connection, message: Question, now: Now) -> None:
        """Answer, now or when the connection has room, or other brokers have answered. Raises what `REFUSALS` lists."""
        if connection.paused:
            if connection.put_off is not None:
                raise RefusalError("busy", "the answer to an earlier question is not read yet; read it first")
            connection.put_off = message
            return
        if len(message.page) > MOST_TOKEN:
            raise RefusalError("page", "this is not a page token; pass the one of the last answer, or none")
        if len(message.broker) > _MOST_NAME:
            raise RefusalError("question", f"the name of a broker has at most {_MOST_NAME} characters")
        asker, question = Asker(connection.principal, message.request, connection), _read(message.body)
        if isinstance(question, AskMatches):  # or it would tell what events contain, filter by filter
            raise RefusalError("question", "only brokers ask each other this; ask why, or search")
        self._check_right(asker.principal, question)
        self._counts["questions"] += 1
        if message.broker in ("", self._reach.name):
            self._answer(asker, question, message.page, now)
            return
        number = self._begin(asker, question)
        self._relay(number, message.broker, bytes(message.body), message.page, now)
        self._finish_if_answered(number, now)

    def _check_right(self, principal: str, question: AnyQuestion) -> None:
        if not isinstance(question, _OWN):
            self._access.of(principal).check(question.right)  # type: ignore[arg-type]
        if isinstance(question, SearchEvents):
            self._history.wanted(principal, question.filter)

    def reply(self, asker: Asker, found: Page | Exception, now: Now, broker: str | None = None) -> None:
        """Send an answer, or why there is none; `broker` is whose it is, if not this one's."""
        body = encode_body(found.answer) if isinstance(found, Page) else msgspec.Raw()
        if len(body) > _MOST_BYTES:  # another broker may have answered with anything
            found = RefusalError("size", "the answer does not fit a frame; ask for less")
        code, reason = "", ""
        if isinstance(found, Exception):
            code, reason = refusal_code(found), shortened(str(found), _MOST_REASON)
            self._counts["failed: question"] += 1
        if asker.connection is None:
            relayed = RelayedAnswer(asker.request, code=code, reason=reason)
            if isinstance(found, Page):
                relayed = RelayedAnswer(asker.request, bytes(body), found.token)
            self._send(asker.broker, RelayKind.ANSWER, relayed, now)
        elif not self._sessions.is_open(asker.connection):
            return
        elif isinstance(found, Page):
            whose = self._reach.name if broker is None else broker
            self._out.send(asker.connection.id, Answer(asker.request, body, found.token, whose))
        else:
            self._out.send(asker.connection.id, Failed("question", asker.request, code, reason))

    # -- answers of this broker -----------------------------------------------------------------------------

    def _answer(self, asker: Asker, question: AnyQuestion, page: bytes, now: Now) -> None:
        """Answer a question; one about the whole network is answered when the others have said what they know.

        Raises what `REFUSALS` lists.
        """
        self._ingest.match(now)
        if isinstance(question, Operation):
            self._operations.carry_out(asker, question, now)
        elif isinstance(question, AskBalance):
            self.reply(asker, Page(self._operations.balance(now)), now)
        elif isinstance(question, AskOverlay):
            self._lead(asker, question, self._contents.summary(), AskSummary(), now)
        elif isinstance(question, AskWhy):
            draft = self._why.draft(asker.principal, question, now)
            self._lead(asker, question, draft, draft.matches, now)
        else:
            self.reply(asker, self._page(asker.principal, question, page), now)

    def _page(self, principal: str, question: AnyQuestion, token: bytes) -> Page:
        """What this broker knows by itself. Raises what `REFUSALS` lists."""
        contents, progress = self._contents, ListProgress()
        match question:
            case AskSummary():
                return Page(contents.summary())
            case AskReach():
                return Page(BrokerReach(len(self._links.neighbours)))
            case AskMatches():
                return Page(self._why.recent_matches(principal, question))
            case AskTrace():
                return Page(contents.trace(principal, question))
            case AskRules():
                return Page(contents.rules(principal, question))
            case SearchEvents():
                return Page(self._history.search(principal, question))
            case AskSessions() | AskSubscriptions() | AskProfiles() | AskItems() | AskOrder() | AskRelated() if token:
                return self._listings.go_on(principal, question, token)
            case AskProfiles():
                steps, make = contents.living_profiles(principal, question, progress), _pages_of(ProfileList)
            case AskSessions():
                steps, make = contents.sessions(principal, question, progress), _pages_of(SessionList)
            case AskSubscriptions():
                steps, make = contents.subscriptions(principal, question, progress), _pages_of(SubscriptionList)
            case AskItems():
                steps, make = contents.items(question, progress), _pages_of(ItemList)
            case AskOrder():
                steps, make = contents.order(principal, question, progress), _pages_of(OrderList)
            case AskRelated():
                steps, make = contents.related(principal, question, progress)
            case _:
                raise RefusalError("question", f"this broker does not answer {type(question).__name__}")
        return self._listings.begin(principal, question, steps, progress, make)

    # -- answers of others ----------------------------------------------------------------------------------

    def _begin(self, asker: Asker, question: AnyQuestion, own: AnyAnswer | WhyDraft | None = None) -> int:
        if len(self._open) >= _MOST_OPEN:
            raise RefusalError("busy", f"{_MOST_OPEN} questions wait for other brokers already; ask later")
        self._numbers += 1
        self._open[self._numbers] = _Inquiry(asker, question, own)
        return self._numbers

    def _lead(
        self, asker: Asker, question: AnyQuestion, own: AnyAnswer | WhyDraft, others: AnyQuestion | None, now: Now
    ) -> None:
        """Ask every other broker, and answer when all have answered or are late."""
        number, body = self._begin(asker, question, own), b"" if others is None else bytes(encode_body(others))
        for broker, _ in self._tree() if others is not None else ():
            if broker != self._reach.name:
                self._relay(number, broker, body, b"", now)
        self._finish_if_answered(number, now)

    def _tree(self) -> list[tuple[str, str]]:
        """The brokers of the network, each with the one before it: this one first, and not too many."""
        here, *others = self._reach.brokers(Link(""))
        return [here, *((name, before or here[0]) for name, before in others)][:_MOST_BROKERS]

    def _relay(self, number: int, broker: str, body: bytes, page: bytes, now: Now) -> None:
        """Ask another broker, and one that may be of an older version where an empty event would go, too."""
        inquiry = self._open[number]
        question = RelayedQuestion(number, inquiry.asker.principal, body, page)
        if not self._send(broker, RelayKind.QUESTION, question, now):
            way = self._reach.path(broker)
            first = f"the link to {way[1]} is down, or not ready yet" if way else "no route leads to it"
            inquiry.answers[broker] = f"{broker} cannot be asked now: {first}"
            return
        if broker not in self._knowing:
            self._send(broker, RelayKind.QUESTION, HopQuestion(-number, self._reach.name, _EMPTY_EVENT), now)
        inquiry.pending[broker] = None
        leads = inquiry.own is None and isinstance(inquiry.question, AskOverlay | AskWhy)  # it waits for others itself
        due = now.monotonic + self._limits.explain * (1 + leads)
        self._timers.add(due, lambda later: self._late(number, broker, later))

    def _send(self, broker: str, kind: RelayKind, body: object, now: Now) -> bool:
        return self._links.relay(LinkRelay(broker, self._reach.name, _encode(body), kind=kind), now)

    def _late(self, number: int, broker: str, now: Now) -> None:
        inquiry = self._open.get(number)
        if inquiry is None or broker not in inquiry.pending:
            return
        way = " - ".join(self._reach.path(broker))
        where = f" by way of {way}" if way else "; no route leads to it any longer"
        self._give_up(number, broker, f"{broker} did not answer within {self._limits.explain / 1e6:g} s{where}", now)

    def _probed(self, broker: str, number: int, now: Now) -> None:
        """A broker has said where an empty event would go, and before that nothing about the question."""
        inquiry = self._open.get(number)
        if inquiry is not None and broker in inquiry.pending and broker not in self._knowing:
            problem = f"{broker} runs an older version of Weft, which answers no questions; update it"
            self._give_up(number, broker, problem, now)

    def _give_up(self, number: int, broker: str, problem: str, now: Now) -> None:
        inquiry = self._open[number]
        del inquiry.pending[broker]
        inquiry.answers[broker] = problem
        self._finish_if_answered(number, now)

    def _finish_if_answered(self, number: int, now: Now) -> None:
        inquiry = self._open[number]
        if inquiry.pending:
            return
        del self._open[number]
        try:
            found, broker = self._together(inquiry)
        except REFUSALS as error:
            self.reply(inquiry.asker, error, now)
        else:
            self.reply(inquiry.asker, found, now, broker)

    def _together(self, inquiry: _Inquiry) -> tuple[Page, str]:
        """The answer that all answers make, and whose it is. Raises RefusalError."""
        answers, own = inquiry.answers, inquiry.own
        if isinstance(own, BrokerSummary):
            rows = [own]
            for name, before in self._tree()[1:]:
                other = answers.get(name, f"{name} was not asked")
                if isinstance(other, BrokerSummary) and len(encode_body(other)) <= _MOST_SUMMARY:
                    rows.append(msgspec.structs.replace(other, name=name, before=before))
                else:
                    problem = "its answer is no summary" if isinstance(other, AnyAnswer) else str(other)
                    rows.append(BrokerSummary(name, before, problem=shortened(problem, _MOST_REASON)))
            return Page(OverlayList(tuple(rows), len(rows), len(self._tree()))), self._reach.name
        if isinstance(own, WhyDraft):
            matches = {name: each for name, each in answers.items() if isinstance(each, RecentMatches | str)}
            return Page(self._why.report(own, matches)), self._reach.name
        ((broker, answer),) = answers.items()
        if isinstance(answer, str):
            raise RefusalError("unanswered", answer)
        if isinstance(answer, Exception):
            raise answer
        return Page(answer, inquiry.token), broker

    # -- of other brokers -----------------------------------------------------------------------------------

    def receive(self, message: LinkRelay, now: Now) -> None:
        """A question or an answer of another broker. What cannot be read is dropped: whoever asked gives up in time."""
        try:
            relayed = _relayed.decode(message.body)
        except (ValueError, RecursionError):  # msgspec's errors are ValueErrors
            self._counts["questions not read"] += 1
            return
        if len(relayed.page) > MOST_TOKEN:
            self._counts["questions not read"] += 1
            return
        if self._reach.next_hop(message.source) is not None:
            self._knowing.add(message.source)
            if len(self._knowing) > _MOST_KNOWING:
                self._knowing.clear()
        if isinstance(relayed, RelayedAnswer):
            self._answered(message.source, relayed, now)
        else:
            self._send(message.source, RelayKind.ANSWER, RelayedAnswer(relayed.number), now)
            if len(self.waiting) < _MOST_WAITING:  # whoever asked gives up in time
                self.waiting.append((message.source, relayed))

    def go_on(self, now: Now) -> None:
        """Answer the question of another broker that has waited longest."""
        broker, asked = self.waiting.popleft()
        asker = Asker(asked.principal, asked.number, None, broker)
        try:
            question = _read(asked.body)
            if not isinstance(question, AskMatches):  # a broker has found that the principal may ask why
                self._check_right(asked.principal, question)
            self._answer(asker, question, asked.page, now)
        except REFUSALS as error:
            self.reply(asker, error, now)

    def _answered(self, broker: str, relayed: RelayedAnswer, now: Now) -> None:
        inquiry = self._open.get(relayed.number)
        if inquiry is None or broker not in inquiry.pending:
            return  # it came too late
        if relayed.code:
            inquiry.answers[broker] = RefusalError(relayed.code, relayed.reason)
        elif not relayed.body:
            return  # the answer follows
        else:
            try:
                inquiry.answers[broker], inquiry.token = read_answer(relayed.body), relayed.page
            except RemoteProtocolError as error:
                inquiry.answers[broker] = f"{broker}: {error}"
        del inquiry.pending[broker]
        self._finish_if_answered(relayed.number, now)


def _read(body: bytes | msgspec.Raw) -> AnyQuestion:
    if len(body) > MOST_QUESTION:
        raise RefusalError("question", f"a question has at most {MOST_QUESTION:,} bytes")
    try:
        return read_question(body)
    except RemoteProtocolError as error:
        raise RefusalError("question", str(error)) from None


def _pages_of(kind: Callable[..., AnyAnswer]) -> MakePage:
    return lambda rows, progress: kind(rows, progress.seen, progress.total)
