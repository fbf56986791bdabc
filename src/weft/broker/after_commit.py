"""What waits for a group to be stored: values that are applied when it is, or undone when the log was full.

`Commit` applies the values of a group in their order, and undoes those of groups that were not stored in the opposite
order. Whatever a value says has been done in memory already, unless its docstring says otherwise.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from weft.broker.effects import ConnectionId
from weft.broker.queue import Queue
from weft.broker.sessions import ClientSubscription, Connection, Session
from weft.log.base import Offset, ProfileRow, Remove, StateChange
from weft.protocol.messages import Accepted, DeadDone, ProfilePublished, QueueNumber, SubNumber, Welcome

if TYPE_CHECKING:
    from weft.broker.completion import Announcement, LearntFrame
    from weft.broker.links.neighbour import Neighbour, PendingRows
    from weft.broker.moves.arrivals import Arrival
    from weft.broker.moves.departures import AskedMove, Departure, PullPhase
    from weft.broker.moves.states import MoveState
    from weft.broker.questions.operations import Asker

# -- clients ------------------------------------------------------------------------------------------


class Welcomed(NamedTuple):
    """A connection has taken a session; it is welcome, and gets deliveries, once that is stored."""

    connection: Connection
    session: Session
    welcome: Welcome
    epoch_before: int | None  # None: the session is new


class SessionForgotten(NamedTuple):
    """A session goes, with everything that it has, once that is stored."""

    session: Session


class ConfirmationDue(NamedTuple):
    """A publisher repeated events that are on their way: they are confirmed with the group that has them."""

    session: Session
    connection: ConnectionId
    epoch: int
    upto: int


# -- subscriptions ------------------------------------------------------------------------------------


class SubscriptionAdded(NamedTuple):
    """A durable subscription was added; its queue is delivered to once that is stored."""

    connection: Connection
    sub: ClientSubscription
    queue: QueueNumber  # by which the client knows the queue
    accepted: Accepted
    announcement: Announcement


class FilterReplaced(NamedTuple):
    """A subscription got another filter, or the same one again (`before` is None)."""

    connection: Connection
    sub: ClientSubscription
    before: tuple[str, Offset] | None
    accepted: Accepted
    announcement: Announcement


class SubscriptionEnded(NamedTuple):
    """A subscription matches nothing any more; it leaves its queue once that is stored."""

    connection: Connection
    sub: ClientSubscription
    last: bool  # it is the last one of its queue, which goes with it
    accepted: Accepted


class SharedQueueCreated(NamedTuple):
    """A shared queue was made, with its one member."""

    queue: Queue
    member: ClientSubscription


class SharedQueueRetired(NamedTuple):
    """The last consumer of a shared queue has left; the queue goes once that is stored."""

    connection: Connection
    number: SubNumber
    queue: Queue
    member: ClientSubscription
    accepted: Accepted


class AdvertAdded(NamedTuple):
    """An advertisement was added, under the id by which it is stored."""

    connection: Connection
    number: int
    stored: int  # 0 if it was there before, and the client said it again
    accepted: Accepted
    announcement: Announcement


class AdvertRemoved(NamedTuple):
    """An advertisement was removed."""

    connection: Connection
    number: int
    stored: int
    text: str
    accepted: Accepted


class ProfileStored(NamedTuple):
    """A profile is published once it is stored; without a row it was before, and its client asks again."""

    connection: Connection
    row: ProfileRow | None
    before: ProfileRow | None
    answer: ProfilePublished


class ProfileRemoved(NamedTuple):
    """A profile is withdrawn once that is stored."""

    connection: Connection
    row: ProfileRow
    number: int
    accepted: Accepted


class Ending(NamedTuple):
    """A subscription that new access rules have ended, and why."""

    session: Session
    number: SubNumber
    reason: str


class Revocations(NamedTuple):
    """Subscriptions that have ended; clients are notified once that is stored, so that `Accepted` comes first."""

    endings: list[Ending]
    changes: list[Remove]


class OperationStored(NamedTuple):
    """An operator has done something; it is answered once that is stored, or cannot be."""

    asker: Asker
    text: str


# -- dead letters -------------------------------------------------------------------------------------


class DeadLettersAdded(NamedTuple):
    """Events have failed too often; the queue is done with them once they are stored as dead letters."""

    queue: Queue
    offsets: list[int]


class DeadLettersRemoved(NamedTuple):
    """Dead letters were acknowledged after all; nobody sees them any more, even while their removal is not stored."""

    queue: Queue
    offsets: set[int]


class DeadLettersDropped(NamedTuple):
    """A client has removed dead letters; it is answered once that is stored, or cannot be."""

    connection: ConnectionId
    message: DeadDone


# -- moves --------------------------------------------------------------------------------------------


class MoveStep(Enum):
    """What about a move is stored."""

    ANSWERED = "the epoch under which another broker asks for a session, which is described to it then"
    CUT_READY = "everything before the cut, so that it is known what the session has"
    CUT = "the cut: the session is no longer here"
    HANDED_ON = "that a session which has left goes to another broker"
    FORGOTTEN = "that a session which has left is forgotten"
    INSTALLED = "a copy of a session"
    FILLING = "that the session is this broker's"
    PULLED = "what was pulled or poured, without copies of events"
    REMOVED = "that a copy is removed"
    CLAIMED = "that a session has gone on without the broker that had it"
    DONE = "that nothing is left to be done"


class CopiesStored(NamedTuple):
    """Copies of events for one session, and how far its move is then. Their changes are stored in the same group."""

    arrival: Arrival
    changes: list[StateChange]
    phase: PullPhase
    got: int
    poured: Offset
    state: MoveState


MoveSubject: TypeAlias = (
    "Departure | Arrival | CopiesStored | tuple[Session, AskedMove, int | None] | tuple[Departure, int, str]"
)


class MoveStored(NamedTuple):
    """A step of a move; see `weft.broker.moves`."""

    step: MoveStep
    subject: MoveSubject


# -- links --------------------------------------------------------------------------------------------


class NeighbourAttached(NamedTuple):
    """A neighbour was attached."""

    neighbour: Neighbour


class NeighbourDetached(NamedTuple):
    """A neighbour is leaving; it is gone once that is stored."""

    neighbour: Neighbour


class PeerLogChanged(NamedTuple):
    """A neighbour has another log: its offsets start over."""

    neighbour: Neighbour
    old: str
    got: int  # of the old log
    new: str
    known: int  # what we had of the new log from an earlier time


class LinkEventsStored(NamedTuple):
    """Events of a neighbour, up to an offset of its log; they are acknowledged once they are stored.

    It belongs to the events of a group, as what publishers have published does.
    """

    neighbour: Neighbour
    log: str
    got: int


class SettingsText(NamedTuple):
    """Settings of the routing table."""

    text: str


RowsSubject: TypeAlias = "LearntFrame | SettingsText"  # what rows are about, if something waits for them


class RowsPending(NamedTuple):
    """Rows of a neighbour or of the table, which a full log stores later."""

    rows: PendingRows
    serial: int
    changes: list[StateChange]
    subject: RowsSubject | None


AfterSession: TypeAlias = Welcomed | SessionForgotten | ConfirmationDue | OperationStored | MoveStored
AfterClient: TypeAlias = AfterSession | AdvertAdded | AdvertRemoved
AfterSubscription: TypeAlias = SubscriptionAdded | FilterReplaced | SubscriptionEnded | Revocations
AfterQueue: TypeAlias = SharedQueueCreated | SharedQueueRetired | DeadLettersAdded | DeadLettersRemoved
AfterLink: TypeAlias = NeighbourAttached | NeighbourDetached | PeerLogChanged | RowsPending
AfterProfile: TypeAlias = ProfileStored | ProfileRemoved
AfterCommit: TypeAlias = AfterClient | AfterSubscription | AfterQueue | DeadLettersDropped | AfterLink | AfterProfile
