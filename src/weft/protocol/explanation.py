"""Explanations of where an event goes, and why: the answer of each broker, and the names of those that are silent."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from weft.errors import RemoteProtocolError


class MatchedSubscription(msgspec.Struct, frozen=True):
    """A subscription of a broker's client that matches."""

    session: str  # its name; empty if it has none, or the queue is shared
    number: int
    filter: str
    share: str = ""
    durable: bool = True
    connected: bool = False
    profiles: str | msgspec.UnsetType = msgspec.UNSET  # how it meets the profiles that it is shown, if any


class LinkChoice(msgspec.Struct, frozen=True):
    """What a broker does about one neighbour."""

    peer: str
    role: str  # what the neighbour is to the broker: peer, parent or child
    state: str  # warm; cold: its interest is not known yet; down: there is no connection
    sent: bool  # or kept for it, while it is not warm
    why: str  # wanted, unwanted, master (that is: a parent), flooding, hashed, cold
    items: tuple[str, ...] = ()  # some of its items that match
    heard: int = 0  # how many items it has sent

    @property
    def reason(self) -> str:
        """In words."""
        reasons = {
            "wanted": f"it wants {' and '.join(self.items)}",
            "unwanted": f"none of the {self.heard:,} items that it told matches" if self.heard else "it told nothing",
            "master": "a parent gets every event",
            "flooding": "events are flooded",
            "hashed": f"none of its {self.heard:,} items matches, but the filter that is used instead of them does",
        }
        return reasons.get(self.why, "it has not yet said what it wants")


class BrokerHop(msgspec.Struct, frozen=True):
    """One broker that an event reaches. If there is a `problem`, it is not known what the broker would do."""

    broker: str
    source: str = ""  # the neighbour from which it comes; empty where it is published
    matched: int = 0  # subscriptions of its clients that match
    subscriptions: tuple[MatchedSubscription, ...] = ()  # some of them
    links: tuple[LinkChoice, ...] = ()  # its other neighbours
    unlisted: int = 0  # neighbours beyond those
    problem: str = ""
    profiles: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET  # some living ones whose region has the event


class Explanation(msgspec.Struct, frozen=True):
    """The path of an event through a network: first the broker that was queried, each other broker after its source."""

    hops: tuple[BrokerHop, ...]
    unasked: int = 0  # brokers that it also goes to; nobody asked them, because there are too many

    @property
    def is_whole(self) -> bool:
        """Whether every broker that the event reaches has answered."""
        return not self.unasked and not any(hop.problem or hop.unlisted for hop in self.hops)

    @property
    def brokers(self) -> list[str]:
        """The brokers that the event reaches."""
        return [hop.broker for hop in self.hops]

    @property
    def matched(self) -> int:
        """How many subscriptions get it."""
        return sum(hop.matched for hop in self.hops)

    def lines(self) -> Iterator[str]:
        """The explanation as text, one line per fact."""
        for hop in self.hops:
            yield f"{hop.broker or 'the broker'}, {f'from {hop.source}' if hop.source else 'where it is published'}"
            if hop.problem:
                yield f"  ?  {hop.problem}"
                continue
            for sub in hop.subscriptions:
                whose = sub.share or sub.session or "a client without a name"
                away = "" if sub.connected else ", which is away"
                shown = f" (is shown profiles by {sub.profiles}, too)" if sub.profiles else ""
                yield f"  *  subscription {sub.number} of {whose}{away}: {sub.filter}{shown}"
            if hop.matched > len(hop.subscriptions):
                yield f"  *  and {hop.matched - len(hop.subscriptions):,} more subscriptions"
            if not hop.matched:
                yield "  *  no subscription here matches"
            if hop.profiles:
                yield f"  *  lies in the profiles {', '.join(hop.profiles)}"
            for link in hop.links:
                waits = _STATES.get(link.state, "") if link.sent else ""
                yield f"  {'>' if link.sent else 'x'}  {link.peer}: {link.reason}{waits}"
            if hop.unlisted:
                yield f"  ?  and {hop.unlisted:,} more neighbours, which are not listed"
        if self.unasked:
            yield f"?  {self.unasked:,} more brokers were not asked"

    def __str__(self) -> str:
        return "\n".join(self.lines())


_decode = msgspec.msgpack.Decoder(Explanation).decode
_STATES = {"cold": "; it waits until then", "down": "; the link is down, and it waits until it is up"}


def explanation_of(body: bytes) -> Explanation:
    """The value in an answer. Raises RemoteProtocolError."""
    try:
        return _decode(body)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise RemoteProtocolError(f"an explanation that was received cannot be read: {error}") from None
