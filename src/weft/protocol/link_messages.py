"""The messages between two neighbouring brokers. The first field of a message is its tag, from 64 to 95.

A link has four streams in each direction, all on one connection, which keeps their order:

- *events*, each under its offset in the sender's log. The receiver stores the highest offset that it has with the
  events themselves, and names it when the link comes up again: the sender goes on after it.
- *control*: the interest of the sender, in frames that are numbered from 1 in each session of the link.
- *progress*: how far the receiver is with both.
- *reach*: which brokers there are behind the sender, and by which way.

A session begins with a `LinkHello` of each side, the dialling side first. Then each side lists what it has received
(`LinkHave`), and the other one sends the difference: additions first, removals last, in the end a frame that says so.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, get_args

import msgspec
from msgspec import Meta

from weft.log.base import Offset
from weft.protocol.messages import VERSION, AnyOffset, Bye, ClientMessage, Message, Natural
from weft.routing.dls.items import Note
from weft.routing.table import About

MOST_ITEMS = 256  # added or dropped by one frame
MOST_EVENTS = 512  # in one frame
MOST_PAIRS = 1 << 12  # of ids and hashes in one frame
MOST_HOPS = 255
PROBE, KNOWS_MOVES = b"weft: do you know moves?", b"weft: yes, moves"  # between neighbours, for their drivers

PLACES_WANTED = b"weft: send me places of "  # and the name of a space: to a neighbour, for its driver

ABOUT = (About.SUBSCRIPTIONS, About.ADVERTISEMENTS)  # the kinds of items, by their numbers on the wire
Kind = Annotated[int, Meta(ge=0, le=1)]
ItemIds = Annotated[tuple[Natural, ...], Meta(max_length=MOST_ITEMS)]


class LinkHello(Message, frozen=True, tag=64):
    """The first message of each side. Both must agree on everything that gives items and events their meaning."""

    versions: tuple[Natural, Natural] = (VERSION, VERSION)
    name: str = ""  # of the sender
    to: str = ""  # the name of the receiver, as the sender knows it
    role: str = "peer"  # what the receiver is to the sender: peer, master (a parent) or slave (a child)
    log_id: str = ""
    incarnation: Natural = 0
    epoch: Natural = 0  # of the session, ascending within an incarnation
    fingerprint: str = ""  # of the sender's table
    settings: str = ""  # what of it may change while it runs
    predicates: tuple[str, ...] = ()
    peer_log: str = ""  # the log of the receiver that `got` is about
    got: Natural = 0  # the highest offset of that log whose event the sender has stored
    credentials: bytes = b""


class LinkHave(Message, frozen=True, tag=65):
    """Items that the sender has received: ids and 8-byte hashes, eight bytes each, the lowest byte first."""

    about: Kind
    ids: bytes
    hashes: bytes
    highest: Natural = 0  # the highest id that was ever received: new items have higher ones
    last: bool = True  # of both kinds together


class LinkUpdate(Message, frozen=True, tag=66):
    """A control frame: what the receiver holds becomes held - drop + add.

    A frame with `fresh` carries notes that stand for all earlier ones. `resynced` says that the receiver now holds what
    the sender wants it to hold.
    """

    number: Natural
    about: Kind = 0
    drop: ItemIds = ()
    ids: ItemIds = ()  # of what is added
    items: Annotated[tuple[bytes, ...], Meta(max_length=MOST_ITEMS)] = ()
    notes: tuple[Note, ...] = ()
    fresh: bool = False
    resynced: bool = False


class LinkEvent(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True, gc=False):
    """An event, with its origin: the publisher's session, its epoch and its sequence there."""

    offset: AnyOffset  # in the sender's log
    session: Natural
    epoch: Natural
    sequence: Natural
    head: msgspec.Raw
    payload: bytes


class LinkEvents(Message, frozen=True, tag=67):
    """Durable events, their offsets ascending."""

    events: Annotated[tuple[LinkEvent, ...], Meta(max_length=MOST_EVENTS)]


class PlacedLinkEvents(LinkEvents, frozen=True, kw_only=True, tag=92):
    """Durable events with their places, for a neighbour that has asked for places in this space (`places_wanted`)."""

    space: Annotated[bytes, Meta(max_length=8)]
    places: bytes  # of one event after the other


class LinkLoose(Message, frozen=True, tag=68):
    """An event that is not durable: it is neither numbered nor sent again."""

    head: msgspec.Raw
    payload: bytes


class LinkProgress(Message, frozen=True, tag=69):
    """How far the sender is: events stored, control frames stored, and those that are complete behind it, too.

    The latter are counted by kind: the last frame about subscriptions, and the last one about advertisements, up to
    which all of the same kind are complete.
    """

    got: AnyOffset = Offset(0)
    heard: Natural = 0
    completed: tuple[Natural, Natural] = (0, 0)


class LinkPing(Message, frozen=True, tag=70):
    """The sender is there."""


class LinkDigest(Message, frozen=True, tag=71):
    """One number for the items of each kind that the receiver holds once it has applied the frame of this number."""

    number: Natural
    subscriptions: Annotated[int, Meta(ge=0)]
    advertisements: Annotated[int, Meta(ge=0)]


class LinkReach(Message, frozen=True, tag=72):
    """All brokers on the sender's side of the link, itself first, each with the one before it on the way from there."""

    brokers: tuple[tuple[str, str], ...]


class RelayKind(IntEnum):
    """The recipient of a relayed message within its broker."""

    DRIVER = 0
    QUESTION = 1  # of `explaining`
    ANSWER = 2
    MOVE = 7  # of `moves`


class LinkRelay(Message, frozen=True, tag=73):
    """Something for another broker, handed on from neighbour to neighbour, in order with events and control."""

    destination: str
    source: str
    body: bytes
    hops: Annotated[int, Meta(ge=0, le=MOST_HOPS)] = 0
    kind: RelayKind = RelayKind.DRIVER


class LinkAhead(Message, frozen=True, tag=74):
    """The sender has dealt with our events up to an offset, so that more may be sent; some of them must still be kept.

    A neighbour that stands for others says it: one of those does not have the event yet.
    """

    upto: AnyOffset


class LinkFeatures(Message, frozen=True, tag=90):
    """What follows needs features that older versions do not have. It is sent once in a session, before the first frame
    that needs one. A neighbour that has them answers with its own; one that does not ends the session.
    """

    features: Annotated[tuple[str, ...], Meta(max_length=64)]


class LinkNumbered(Message, frozen=True, tag=91):
    """A frame of another table, or another lane, than number 0, whose frames are sent as they are.

    Control frames belong to a table: 0 has subscriptions, 1 profiles and the queries for them. Frames of events belong
    to a lane; a link has one for now.
    """

    number: Natural
    frame: LinkHave | LinkUpdate | LinkDigest | LinkProgress | LinkEvents | LinkAhead


LISTS = "lists"  # a feature: lists in events, and filters with HAS
PROFILES = "profiles"  # a feature: a second table on the link
PROFILE_TABLE = 1
LINK_EVENTS = LinkEvents, PlacedLinkEvents  # the types of frames of durable events
LinkControl = LinkHave | LinkUpdate | LinkDigest
LinkTraffic = LinkEvents | PlacedLinkEvents | LinkLoose | LinkProgress | LinkAhead
LinkOther = LinkPing | LinkReach | LinkRelay | LinkFeatures | LinkNumbered
LinkMessage = LinkHello | LinkControl | LinkTraffic | LinkOther | Bye
IncomingMessage = ClientMessage | LinkMessage  # what a broker reads
LINK_MESSAGES: tuple[type, ...] = get_args(LinkMessage)
