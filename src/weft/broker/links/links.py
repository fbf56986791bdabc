"""A broker among its neighbours: the whole life of a link, from `attach` over its sessions to `detach`.

A neighbour is sent what is wanted here, and nothing before this broker has all that it received itself. Events and
answers go at once. What neighbours send is learnt a few items a turn (`work`), so that nobody waits long. Whatever
breaks the protocol ends the session, and nothing else.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec

from weft.broker.admission import Admission
from weft.broker.after_commit import (
    LinkEventsStored,
    NeighbourAttached,
    NeighbourDetached,
    PeerLogChanged,
    RowsPending,
    SettingsText,
)
from weft.broker.completion import Completion, LearntFrame
from weft.broker.effects import Now, Outbox, Timers
from weft.broker.event_places import EventPlaces, PlaceRun
from weft.broker.journal import Journal
from weft.broker.limits import ClientLimits, RefusalError
from weft.broker.links.events import EventForwarding
from weft.broker.links.handshake import AuthenticateLink, Reach, check_agreement
from weft.broker.links.neighbour import (
    TABLE_SETTINGS,
    LinkInput,
    Neighbour,
    PendingRows,
    TableExchange,
    stored_role,
)
from weft.broker.profiles.profile_table import ProfileTable
from weft.broker.rules import Access
from weft.broker.sessions import Connection, Sessions
from weft.errors import AccessError, EventError, LocalProtocolError, RemoteProtocolError
from weft.language.ast import Filter, Has, HasElement, walk
from weft.log.base import NEVER, HeardRow, LinkRow, Offset, Remove, SeatId, SetMeta, State
from weft.protocol.link_messages import (
    ABOUT,
    KNOWS_MOVES,
    LISTS,
    MOST_HOPS,
    PLACES_WANTED,
    PROBE,
    PROFILE_TABLE,
    PROFILES,
    IncomingMessage,
    LinkAhead,
    LinkDigest,
    LinkEvents,
    LinkFeatures,
    LinkHave,
    LinkHello,
    LinkLoose,
    LinkNumbered,
    LinkPing,
    LinkProgress,
    LinkReach,
    LinkRelay,
    LinkUpdate,
    PlacedLinkEvents,
    RelayKind,
)
from weft.protocol.messages import Bye
from weft.routing.adverts import Tunable
from weft.routing.dls.space import LabelSpace
from weft.routing.table import Link, Role, RoutingTable, Tell

_ITEMS = 1_024  # items that are examined for a neighbour in one turn
_PROBED = 30_000_000  # microseconds in which a neighbour says that it knows moves
_STEPS = 4  # of what is pending, for each item that may be learnt: they are much cheaper


class Links:
    """The links of one broker."""

    def __init__(  # noqa: PLR0913, PLR0917 - what a link concerns
        self,
        name: str,
        journal: Journal,
        sessions: Sessions,
        tables: Sequence[RoutingTable],
        neighbours: dict[Link, Neighbour],
        forwarding: EventForwarding,
        completion: Completion,
        access: Access,
        decoder: Admission,
        out: Outbox,
        timers: Timers,
        limits: ClientLimits,
        counts: Counter[str],
        places: EventPlaces,
        credentials: Callable[[Link], bytes],
        authenticate: AuthenticateLink | None,
        predicates: tuple[str, ...],
    ) -> None:
        self._journal, self._sessions, self._tables, self._decoder = journal, sessions, tables, decoder
        self._table = table = tables[0]  # of subscriptions, which routes events
        self.uses_profiles = False  # here or at some broker that has said so; neighbours are told
        self._forwarding, self._completion = forwarding, completion
        self._out, self._timers, self._limits, self._counts = out, timers, limits, counts
        self._access, self._credentials, self._authenticate_link = access, credentials, authenticate
        self.neighbours, self.reach, self._predicates = neighbours, Reach(name), predicates
        self._places = places
        self._epochs = 0  # of our hellos
        self.due, self.behind = forwarding.due, forwarding.behind
        self.table_pending = False  # the table has more to do
        self.table_changed = True  # since what is buffered in its index was last flushed
        self.learning: dict[Link, None] = {}  # neighbours whose control frames are not all learnt
        self._turn = 0  # whose frames are learnt next
        self._settings, self._settings_stored = table.settings, True  # the latest, and whether the log has them
        self._settings_rows = PendingRows(journal, timers)
        self.relayed: Callable[[LinkRelay, Now], object] = self.relay  # gets what neighbours have relayed
        self.bounced: Callable[[LinkRelay, Now], None] = lambda _, __: None  # gets what an older neighbour cannot read
        self.linked: Callable[[Now], None] = lambda _: None  # called when a neighbour has sent all that it wants
        self._unposted: list[LinkRelay] = []  # relays that wait until the table has passed on what came before them

    # -- attach and detach ----------------------------------------------------------------------------

    def attach(self, peer: Link, role: Role) -> None:
        """Make a neighbour, from the next event on. Raises LocalProtocolError."""
        journal = self._journal
        if not self.reach.name:
            raise LocalProtocolError("a broker with neighbours needs a name; give it one")
        if peer in self.neighbours:
            raise LocalProtocolError(f"{peer} is already a neighbour; detach it first")
        if way := self.reach.path(peer):
            raise LocalProtocolError(f"links must form a tree, but {peer} is already reachable: {' - '.join(way)}")
        tells = [table.attach(peer, Role.PEER if number else role) for number, table in enumerate(self._tables)]
        link_id = journal.new_consumer()
        journal.new_consumer()  # for events that come in while it is unsynced
        neighbour = self._add(LinkRow(link_id, peer, stored_role(role), "", 0, journal.next))
        for number, some in enumerate(tells):
            self.tell(some, number)
        journal.write.changes.append(neighbour.row())
        journal.write.urgent = True
        journal.write.waiting.append(NeighbourAttached(neighbour))

    def _add(self, row: LinkRow, restored: bool = False) -> Neighbour:
        rows = PendingRows(self._journal, self._timers)
        neighbour = Neighbour(row, self._tables, self._limits, rows, restored)
        self.neighbours[neighbour.peer] = neighbour
        return neighbour

    def restore(self, kept: State) -> None:
        """Take the neighbours back, and what they sent, which the table has already. Only now is anything sent."""
        journal = self._journal
        self._settings = self._table.settings
        for link_id, row in kept.links.items():
            neighbour = self._add(row, restored=True)
            journal.next_consumer = SeatId(max(journal.next_consumer, link_id + 2))
            if neighbour.synced:
                self.reach.add_neighbour(neighbour.peer)
        for item in kept.heard.values():
            link = kept.links.get(item.link)
            if link is not None:
                exchange = self.neighbours[Link(link.peer)].exchanges[item.table]
                exchange.receiver.restore(item.about, item.item, item.body)
                self.uses_profiles = self.uses_profiles or item.table == PROFILE_TABLE
        for peer, neighbour in self.neighbours.items():
            for number, table in enumerate(self._tables):
                self.tell(table.attach(peer, Role.PEER if number else neighbour.role), number)

    def detach(self, peer: Link) -> None:
        """End a neighbour as soon as that is stored. Raises LocalProtocolError."""
        neighbour = self.neighbours.get(peer)
        if neighbour is None or neighbour.leaving:
            raise LocalProtocolError(f"there is no neighbour {peer} to detach")
        neighbour.step(LinkInput.DETACHED)
        write, link_id = self._journal.write, neighbour.window.link_id
        for exchange in neighbour.exchanges:
            received = ((about, item) for about, items in enumerate(exchange.receiver.hashes) for item in items)
            write.changes += [Remove(HeardRow, (link_id, *each, exchange.number)) for each in received]
        write.changes.append(Remove(LinkRow, (link_id,)))
        write.urgent = True
        write.waiting.append(NeighbourDetached(neighbour))

    def undo_detach(self, neighbour: Neighbour) -> None:
        """The end of a neighbour could not be stored."""
        neighbour.step(LinkInput.KEPT)

    def detach_slow(self) -> None:
        """Detach the neighbours that are too far behind."""
        too_far, self._forwarding.too_far = self._forwarding.too_far, []
        for peer in sorted({*too_far} & self.neighbours.keys()):
            if not self.neighbours[peer].leaving:
                self._counts["links too far behind"] += 1
                self.detach(peer)

    def gone(self, neighbour: Neighbour, now: Now) -> None:
        """A neighbour is gone for good: nobody waits for it any more."""
        peer = neighbour.peer
        if self.neighbours.get(peer) is not neighbour:
            return
        neighbour.step(LinkInput.DETACHED)
        for connection in (neighbour.connection, neighbour.dialling):
            if connection is not None:
                self.close(connection, "detached", f"{self.reach.name} has detached this link", now)
        del self.neighbours[peer]
        neighbour.rows.ended = True
        self._journal.moved_windows.pop(neighbour.window, None)
        self._forget_due(peer)
        for exchange in neighbour.exchanges:
            exchange.sender.end()
            for change in exchange.sender.marks.give_up():
                change.completed(peer)
        self.reach.remove_neighbour(peer)
        for number, table in enumerate(self._tables):
            self.tell(table.detach(peer), number)
        self.all_due()
        self._send_reach()
        self._completion.links_changed()

    # -- connections ----------------------------------------------------------------------------------

    def dialled(self, connection: Connection, peer: Link, now: Now) -> None:
        """We have opened a connection to a neighbour. Raises LocalProtocolError for one that is not attached."""
        neighbour = self.neighbours.get(peer)
        if neighbour is None or neighbour.leaving:
            raise LocalProtocolError(f"there is no neighbour {peer}; attach it first")
        self._sessions.connections[connection.id] = connection
        self._timers.add(connection.last_read + self._limits.hello, lambda at: self._check_hello_came(connection, at))
        old, neighbour.dialling = neighbour.dialling, connection
        connection.dialled = peer
        if old is not None:
            self.close(old, "dialled", "a newer connection was dialled", now)
        if neighbour.connection is not None:
            neighbour.dialling = None
            self.close(connection, "connected", f"{peer} is connected already", now)
            return
        self._send_hello(connection, neighbour)

    def _check_hello_came(self, connection: Connection, now: Now) -> None:
        if self._sessions.is_open(connection) and connection.link is None:
            self.close(connection, "hello", "no hello arrived in time", now)

    def close(self, connection: Connection, code: str, reason: str, now: Now) -> None:  # noqa: ARG002
        """Close a connection, and say why."""
        self._sessions.say_bye(connection, code, reason)
        self.closed(connection)
        if connection.link is not None:
            connection.link.reason = reason

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        self._sessions.remove(connection)
        for neighbour in self.neighbours.values():
            if neighbour.dialling is connection:
                neighbour.dialling = None
            if neighbour.connection is connection:
                self._end_session(neighbour, "the connection is gone")

    def resumed(self, neighbour: Neighbour) -> None:
        """The connection of a neighbour has room again."""
        self.behind[neighbour.peer] = None

    # -- sessions -------------------------------------------------------------------------------------

    def _hello(self, connection: Connection, theirs: LinkHello, now: Now) -> None:
        """A neighbour's first message: its session begins, or it is refused with a reason."""
        try:
            self._authenticate(connection, theirs, now)
            neighbour = self._neighbour_of(connection, theirs)
        except (AccessError, RemoteProtocolError) as error:
            self._counts["links refused"] += 1
            known = self.neighbours.get(Link(theirs.name))
            if known is not None and known.connection is None and not connection.unauthenticated:
                known.reason = str(error)
            self.close(connection, "refused", str(error), now)
            return
        self._sessions.unauthenticated.pop(connection.id, None)
        neighbour.last_session = theirs.incarnation, theirs.epoch
        if neighbour.lacks_profiles != theirs.incarnation:
            neighbour.lacks_profiles = None
        old, dialling = neighbour.connection, neighbour.dialling
        if connection.dialled is None:
            self._send_hello(connection, neighbour)
        neighbour.dialling = None
        for each in (old, dialling):
            if each is not None and each is not connection:
                self._counts["links taken over"] += 1
                self.close(each, "taken over", "a newer connection has taken the link over", now)
        connection.link = neighbour
        if neighbour.peer_log != theirs.log_id:
            self._change_log(neighbour, theirs.log_id)
        neighbour.begin(connection)
        self._places.forget(neighbour.peer)
        if self.reach.next_hop(neighbour.peer) is None:
            self.reach.add_neighbour(neighbour.peer)
            self._send_reach(neighbour.peer)
        neighbour.window.resume(theirs.got if theirs.peer_log == self._journal.log_id else 0)
        self.behind[neighbour.peer] = None
        for have in neighbour.receiver.begin():
            self._out.send(connection.id, have)
        self._out.send(connection.id, LinkReach(self.reach.brokers(neighbour.peer)))
        if self.uses_profiles:
            self._announce_profiles(neighbour)
        self._completion.links_changed()
        self._beat_later(neighbour, connection, now)

    def _send_hello(self, connection: Connection, neighbour: Neighbour) -> None:
        self._epochs += 1
        hello = LinkHello(
            name=self.reach.name,
            to=neighbour.peer,
            role=neighbour.role.value,
            log_id=self._journal.log_id,
            incarnation=self._journal.incarnation,
            epoch=self._epochs,
            fingerprint=self._table.fingerprint,
            settings=self._table.settings,
            predicates=self._predicates,
            peer_log=neighbour.peer_log,
            got=neighbour.got,
            credentials=self._credentials(neighbour.peer),
        )
        self._out.send(connection.id, hello)

    def _authenticate(self, connection: Connection, theirs: LinkHello, now: Now) -> None:
        """Raise AccessError unless a broker is who it says: a principal links as the broker of its own name."""
        if self._authenticate_link is not None:
            self._authenticate_link(theirs)
        if connection.authenticate is None:
            return
        who = connection.authenticate(theirs.credentials)
        if not who.principal:
            raise AccessError("the name of a principal must not be empty")
        connection.principal, connection.key = who.principal, who.key
        self._access.of(who.principal).check("link")
        if who.principal != theirs.name:
            raise AccessError(f"{who.principal} cannot link as {theirs.name or 'a broker without a name'}")
        self._sessions.close_at(connection, who.until, self.close, now)

    def _neighbour_of(self, connection: Connection, theirs: LinkHello) -> Neighbour:
        """The neighbour of a hello. Raises AccessError or RemoteProtocolError."""
        journal, mine = self._journal, self.reach.name
        neighbour = self.neighbours.get(Link(theirs.name))
        if neighbour is None or neighbour.leaving:
            name = theirs.name or "a broker without a name"
            raise AccessError(f"{name} is not a neighbour of {mine}; attach it there")
        if connection.dialled is not None and connection.dialled != theirs.name:
            raise AccessError(f"{connection.dialled} was dialled, but {theirs.name} has answered; check its address")
        check_agreement(mine, self._table, self._predicates, neighbour.role, theirs)
        self.reach.check(neighbour.peer, theirs.name)
        stale = theirs.log_id == neighbour.peer_log and (theirs.incarnation, theirs.epoch) <= neighbour.last_session
        former = neighbour.connection is not None and theirs.log_id in neighbour.former_logs  # else it may be back
        if stale or former:
            raise AccessError(f"this connection of {theirs.name} is older than the current one")
        if theirs.log_id == journal.log_id:
            raise AccessError(f"{theirs.name} has the log of {mine}; give each broker its own data directory")
        if theirs.peer_log == journal.log_id and theirs.got >= journal.end:
            raise AccessError(
                f"{theirs.name} has event {theirs.got} of {mine}, whose log ends before it: a backup was restored "
                "under its old id; restore it with `weft log restore`"
            )
        if connection.dialled is None and neighbour.dialling is not None and mine < theirs.name:
            raise AccessError(f"{mine} is dialling {theirs.name} at the same time, and has priority")
        return neighbour

    def _change_log(self, neighbour: Neighbour, peer_log: str) -> None:
        """Offsets of another log begin again. A late hello of a former log does no harm: what it had is remembered."""
        old, got = neighbour.peer_log, neighbour.got
        known = neighbour.former_logs.pop(peer_log, 0)
        if old:
            neighbour.former_logs[old] = got
        neighbour.peer_log, neighbour.got, neighbour.received = peer_log, known, known
        self._journal.write.changes.append(neighbour.row())
        self._journal.write.waiting.append(PeerLogChanged(neighbour, old, got, peer_log, known))

    def undo_new_log(self, changed: PeerLogChanged, reason: str, now: Now) -> None:
        """Another log of a neighbour could not be stored."""
        neighbour = changed.neighbour
        neighbour.former_logs.pop(changed.old, None)
        if changed.known:
            neighbour.former_logs[changed.new] = changed.known
        neighbour.peer_log, neighbour.got, neighbour.received = changed.old, changed.got, changed.got
        if neighbour.connection is not None:
            self.close(neighbour.connection, "full", reason, now)

    def _end_session(self, neighbour: Neighbour, reason: str) -> None:
        neighbour.end(reason)
        rows = [row for exchange in neighbour.exchanges for row in exchange.receiver.take_rows()]
        if rows and not neighbour.leaving:
            neighbour.rows.put(rows)
        self._forget_due(neighbour.peer)
        self._completion.links_changed()

    # -- messages -------------------------------------------------------------------------------------

    def receive(self, connection: Connection, message: IncomingMessage, now: Now) -> None:
        """A message on a connection that is a link, or is about to become one."""
        neighbour = connection.link
        try:
            if neighbour is not None:
                self.due[neighbour.peer] = None
                if isinstance(message, LinkEvents):
                    self._events(neighbour, message)
                elif type(message) is LinkProgress:
                    _progressed(neighbour.exchanges[0], message)
                    self._forwarding.acknowledged(neighbour, message.got)
                else:
                    self._receive(connection, neighbour, message, now)
            elif isinstance(message, LinkHello):
                self._hello(connection, message, now)
            elif isinstance(message, Bye):
                self._bye(connection, message, now)
            else:
                raise RemoteProtocolError("a link begins with a hello")
        except EventError as error:
            peer = "" if neighbour is None else neighbour.peer
            self._fail(connection, f"{peer} sends an event that cannot be read: {error}", now)
        except RemoteProtocolError as error:
            self._fail(connection, str(error), now)

    def _fail(self, connection: Connection, reason: str, now: Now) -> None:
        """A neighbour has broken the protocol, or does not have what it should have: the next session mends it."""
        self._counts["link sessions failed"] += 1
        self.close(connection, "protocol", reason, now)

    def _receive(self, connection: Connection, neighbour: Neighbour, message: IncomingMessage, now: Now) -> None:
        match message:
            case LinkAhead(upto):
                if neighbour.window.pass_by(upto):
                    self.behind[neighbour.peer] = None
            case LinkUpdate() | LinkDigest():
                neighbour.receiver.receive(message, neighbour.received)
                self.learning[neighbour.peer] = None
            case LinkRelay():
                if neighbour.receiver.receive(message, neighbour.received):
                    self.learning[neighbour.peer] = None
                else:
                    self._counts["relays dropped"] += 1
            case LinkHave():
                if neighbour.sender.receive_have(message):
                    self._resync(neighbour, neighbour.exchanges[0])
            case LinkNumbered(number, frame):
                self._numbered(neighbour, number, frame)
            case LinkLoose():
                attributes, head, expires = self._decoder.relayed(message.head)
                if expires > self._journal.at:
                    self._journal.write.add_transient(attributes, head, message.payload, neighbour.peer)
            case LinkReach():
                if self.reach.update(neighbour.peer, message.brokers):
                    self._send_reach(neighbour.peer)
            case Bye():
                self._bye(connection, message, now)
            case LinkPing():
                pass
            case LinkFeatures(features):
                self._needs(connection, neighbour, features)
            case _:
                raise RemoteProtocolError(f"a neighbour does not send {type(message).__name__}")

    def _numbered(self, neighbour: Neighbour, number: int, frame: msgspec.Struct) -> None:
        """A frame of another table than that of subscriptions."""
        if isinstance(frame, LinkEvents | LinkAhead):
            raise RemoteProtocolError(f"{neighbour.peer} sends events on lane {number}; a link has only lane 0")
        if number != PROFILE_TABLE or not neighbour.knows_profiles:
            raise RemoteProtocolError(f"{neighbour.peer} sends a frame of table {number}, which the link does not have")
        exchange = neighbour.exchanges[number]
        if isinstance(frame, LinkProgress):
            _progressed(exchange, frame)
            self._post_behind_profiles(neighbour)
        elif isinstance(frame, LinkHave):
            if exchange.sender.receive_have(frame):
                self._resync(neighbour, exchange)
        elif isinstance(frame, LinkUpdate | LinkDigest):
            exchange.receiver.receive(frame, 0)
            self.learning[neighbour.peer] = None

    def _needs(self, connection: Connection, neighbour: Neighbour, features: Sequence[str]) -> None:
        """A neighbour is about to send what needs some features."""
        for unknown in sorted({*features} - {LISTS, PROFILES}):
            raise RemoteProtocolError(f"{self.reach.name} runs an older version of Weft without {unknown}; update it")
        if LISTS in features:
            neighbour.knows_lists = True
            if not neighbour.needs_lists:
                self._out.send(connection.id, neighbour.announce_lists())
        if PROFILES in features and not neighbour.knows_profiles:
            neighbour.knows_profiles = True
            self.use_profiles()
            for have in neighbour.exchanges[PROFILE_TABLE].receiver.begin():
                self._out.send(connection.id, LinkNumbered(PROFILE_TABLE, have))

    def use_profiles(self) -> None:
        """There are profiles, or queries for them: neighbours that do not know it are told. Nothing is sent before."""
        if not self.uses_profiles:
            self.uses_profiles = True
            for neighbour in self.neighbours.values():
                self._announce_profiles(neighbour)

    def _announce_profiles(self, neighbour: Neighbour) -> None:
        connection = neighbour.connection
        if connection is not None and neighbour.lacks_profiles is None and not neighbour.told_profiles:
            neighbour.told_profiles = True
            self._out.send(connection.id, LinkFeatures((PROFILES,)))

    @property
    def without_profiles(self) -> str:
        """Why there cannot be profiles now: a neighbour is too old. Empty if nothing is known against them."""
        old = (each.peer for each in self.neighbours.values() if each.lacks_profiles is not None)
        return next((_lacks(peer) for peer in sorted(old)), "")

    def _withdraws(self, neighbour: Neighbour) -> tuple[bool, bool]:
        """Whether a comparison may withdraw queries from a neighbour, and profiles.

        Queries come from other neighbours, and profiles from there, if the neighbour's own queries meet them: after a
        restart all of that is waited for. What others know already must not disappear for a moment.
        """
        others = [each for each in self.neighbours.values() if each is not neighbour and each.lacks_profiles is None]
        exchanges = [each.exchanges[PROFILE_TABLE] for each in others if not each.leaving]
        queries = all(each.has_adverts for each in exchanges)
        mine = neighbour.exchanges[PROFILE_TABLE].has_adverts
        return queries, mine and queries and all(each.has_all for each in exchanges)

    def _tests_lists(self, frame: LinkUpdate) -> bool:
        """Whether an item of a frame has a HAS."""
        about = ABOUT[frame.about]
        items = [self._table.codec.decode_item(about, item) for item in frame.items if b" HAS " in item]
        return any(
            isinstance(item, Filter) and any(isinstance(each, Has | HasElement) for each in walk(item))
            for item in items
        )

    def _bye(self, connection: Connection, message: Bye, now: Now) -> None:
        peer = connection.dialled if connection.link is None else connection.link.peer
        neighbour = None if peer is None else self.neighbours.get(peer)
        self.close(connection, "goodbye", "the neighbour ended the connection", now)
        if neighbour is not None:
            neighbour.reason = message.reason
            if message.code == "protocol" and neighbour.told_profiles and not neighbour.knows_profiles:
                neighbour.lacks_profiles = neighbour.last_session[0]
                neighbour.reason = _lacks(neighbour.peer)
                self._counts["neighbours without profiles"] += 1
            if message.code == "protocol" and neighbour.needs_lists and not neighbour.knows_lists:
                neighbour.reason = f"{peer} runs an older version of Weft without lists and HAS; update it"

    def _send_reach(self, but: Link | None = None) -> None:
        """Send neighbours the list of brokers on our side of each link."""
        for peer, neighbour in self.neighbours.items():
            if peer != but and neighbour.connection is not None:
                self._out.send(neighbour.connection.id, LinkReach(self.reach.brokers(peer)))

    def relay(self, message: LinkRelay, now: Now) -> bool:
        """Hand a message on to the next broker on its way; whether that was possible.

        It goes behind everything that neighbours must be sent because of what was learnt so far.
        """
        neighbour = self._next_hop(message)
        if neighbour is None:
            self._counts["relays dropped"] += 1
            return False
        if message.kind is RelayKind.MOVE and not neighbour.knows_moves:
            self._probe(neighbour, message, now)
        else:
            self._hand_on(message, neighbour)
        return True

    def _hand_on(self, message: LinkRelay, neighbour: Neighbour) -> None:
        """Send it now, or when the table has passed on what came before it."""
        if self._unposted or any(table.pending for table in self._tables):
            self._unposted.append(message)
        else:
            self._post(message, neighbour)

    def _probe(self, neighbour: Neighbour, message: LinkRelay, now: Now) -> None:
        """Find out whether a neighbour knows moves, and its relays are markers; until then messages about moves wait.

        An older broker would not read them. It hands what it is asked to its driver, which does nothing with it.
        """
        neighbour.held.append(message)
        if len(neighbour.held) > 1:
            return
        connection = neighbour.connection
        self.relay(LinkRelay(neighbour.peer, self.reach.name, PROBE), now)
        self._timers.add(now.monotonic + _PROBED, lambda later: self._give_up_probe(neighbour, connection, later))

    def _give_up_probe(self, neighbour: Neighbour, connection: Connection | None, now: Now) -> None:
        if neighbour.connection is connection and not neighbour.knows_moves:
            held, neighbour.held = neighbour.held, []
            for message in held:
                self.bounced(message, now)

    def probed(self, message: LinkRelay, now: Now) -> None:
        """A neighbour asks whether this broker knows moves, or answers that it does."""
        neighbour = self.neighbours.get(Link(message.source))
        if neighbour is None:
            return
        if message.body == PROBE:
            self.relay(LinkRelay(message.source, self.reach.name, KNOWS_MOVES), now)
        else:
            neighbour.knows_moves = True
            held, neighbour.held = neighbour.held, []
            for each in held:
                self.relay(each, now)

    def _ask_places(self, neighbour: Neighbour) -> None:
        """Ask a neighbour for the places of its events, or for none, if that has changed.

        An older broker hands what it is asked to its driver, which does nothing with it.
        """
        wanted = self._places.wanted
        if wanted != neighbour.places_asked:
            relay = LinkRelay(neighbour.peer, self.reach.name, PLACES_WANTED + wanted)
            if self._next_hop(relay) is not None:
                neighbour.places_asked = wanted
                self._hand_on(relay, neighbour)

    def places_wanted(self, message: LinkRelay) -> None:
        """A neighbour wants places, or does not any more."""
        neighbour = self.neighbours.get(Link(message.source))
        if neighbour is not None:
            neighbour.places_wanted = message.body.removeprefix(PLACES_WANTED)[:8]

    def _next_hop(self, message: LinkRelay) -> Neighbour | None:
        hop = self.reach.next_hop(message.destination)
        neighbour = None if hop is None else self.neighbours[hop]
        if neighbour is None or not neighbour.synced or neighbour.sender.resyncing or message.hops >= MOST_HOPS:
            return None
        if message.kind is RelayKind.MOVE and self.uses_profiles and neighbour.lacks_profiles is None:
            listed = neighbour.exchanges[PROFILE_TABLE].sender.listed
            return neighbour if listed else None  # until then profiles that go before are not in the queue
        return neighbour

    def _post(self, message: LinkRelay, neighbour: Neighbour) -> None:
        """Send a message behind everything of both tables; profiles are not in the queue in which it travels."""
        profiles, self.behind[neighbour.peer] = neighbour.exchanges[PROFILE_TABLE].sender, None
        message = msgspec.structs.replace(message, hops=message.hops + 1)
        if (
            message.kind is RelayKind.MOVE
            and neighbour.knows_profiles
            and not (profiles.idle and profiles.acked and not neighbour.behind_profiles)
        ):
            profiles.relay(Offset(0), message)
        else:
            neighbour.sender.relay(self._journal.upcoming, message)

    def _post_behind_profiles(self, neighbour: Neighbour) -> None:
        """Send the messages that have waited until the neighbour had stored the profiles before them."""
        waiting, acked = neighbour.behind_profiles, neighbour.exchanges[PROFILE_TABLE].sender.marks.acked
        while waiting and waiting[0][0] <= acked:
            neighbour.sender.relay(self._journal.upcoming, waiting.popleft()[1])
            self.behind[neighbour.peer] = None

    def _post_all(self) -> None:
        """Hand on the messages that have waited for the table."""
        unposted, self._unposted = self._unposted, []
        for message in unposted:
            neighbour = self._next_hop(message)
            if neighbour is None:
                self._counts["relays dropped"] += 1
            else:
                self._post(message, neighbour)

    # -- events of neighbours -------------------------------------------------------------------------

    def _events(self, neighbour: Neighbour, message: LinkEvents) -> None:
        journal = self._journal
        write, first = journal.write, len(journal.write.attributes)
        before = neighbour.received
        decode = self._decoder.relayed
        try:
            for event in message.events:
                if event.offset <= neighbour.received:
                    self._counts["link duplicates"] += 1
                    continue
                attributes, head, expires = decode(event.head)
                neighbour.received = event.offset
                if expires <= journal.at:
                    self._counts["expired"] += 1
                    continue
                write.attributes.append(attributes)
                write.heads.append(head)
                write.payloads.append(event.payload)
                write.expires.append(expires)
                write.expiring = write.expiring or expires != NEVER
                write.origins.append((event.session, event.epoch, event.sequence, 1))
        finally:  # also of a frame with an event that cannot be read: what is before it came from this neighbour
            if neighbour.received != before:
                if len(write.attributes) > first:
                    write.foreign.append((first, len(write.attributes), neighbour.peer))
                    if isinstance(message, PlacedLinkEvents) and len(write.attributes) - first == len(message.events):
                        run = PlaceRun(neighbour.peer, first, len(write.attributes), message.space, message.places)
                        write.placed.append(run)
                write.urgent = True
                write.arrivals.append(LinkEventsStored(neighbour, neighbour.peer_log, neighbour.received))

    def got(self, peer: Link, log: str) -> int:
        """The highest offset of one of a neighbour's logs whose event is stored here."""
        neighbour = self.neighbours.get(peer)
        if neighbour is None:
            return 0
        return neighbour.got if neighbour.peer_log == log else neighbour.former_logs.get(log, 0)

    def events_stored(self, stored: LinkEventsStored) -> None:
        """Events of a neighbour are in the log: they are acknowledged at the end of the turn."""
        neighbour = stored.neighbour
        self.due[neighbour.peer] = None
        if neighbour.peer_log == stored.log:
            neighbour.got = max(neighbour.got, stored.got)
        elif stored.log in neighbour.former_logs:
            neighbour.former_logs[stored.log] = max(neighbour.former_logs[stored.log], stored.got)

    def undo_events(self, stored: LinkEventsStored, reason: str, now: Now) -> None:
        """Events of a neighbour could not be stored: the next session sends them again."""
        neighbour = stored.neighbour
        if neighbour.peer_log == stored.log:
            neighbour.received = neighbour.got
        if neighbour.connection is not None:  # perhaps a newer one, which knows that these events are here
            self.close(neighbour.connection, "full", reason, now)

    # -- interest -------------------------------------------------------------------------------------

    def tell(self, tells: Sequence[Tell], table: int = 0) -> None:
        """A table was changed: queue its updates for neighbours."""
        self.table_changed = True
        if not self.neighbours:
            return
        self.table_pending = any(each.pending for each in self._tables)
        for tell in tells:
            neighbour = self.neighbours.get(tell.link)
            if neighbour is not None:
                behind = Offset(0) if table else self._withdraw_behind(neighbour)
                neighbour.exchanges[table].sender.enqueue(tell.update, behind)
                self.due[neighbour.peer] = None

    def _step(self, steps: int) -> None:
        """Let the table continue what is pending; neighbours may wait for the end of it."""
        for number, table in enumerate(self._tables):
            if table.pending or not number:
                self.tell(table.step(steps), number)
        self._store_settings()
        self.all_due()

    def _forget_due(self, peer: Link) -> None:
        for some in (self.due, self.behind, self.learning):
            some.pop(peer, None)

    def all_due(self) -> None:
        """Something that every neighbour may wait for has happened."""
        self.due.update(dict.fromkeys(self.neighbours))

    def _withdraw_behind(self, neighbour: Neighbour) -> Offset:
        """Below: the events that a neighbour must have before it is sent that an advertisement is gone.

        An unsynced one has not completed any advertisement, so that nobody was promised that its events arrive; and
        events for it wait until it has sent everything, for which it may in turn wait for us.
        """
        return self._journal.upcoming if neighbour.synced else Offset(0)

    def _resync(self, neighbour: Neighbour, exchange: TableExchange) -> None:
        """Compare everything that a neighbour should know with what it holds."""
        self._counts["resyncs"] += 1
        self.due[neighbour.peer] = None
        if exchange.number:
            exchange.sender.resync(Offset(0))
            return
        neighbour.sender.resync(self._withdraw_behind(neighbour))
        if self._table.codec.noted:
            self.tell(self._table.attach(neighbour.peer, neighbour.role))

    def retune(self, space: LabelSpace) -> None:
        """Change the label space of the network; nobody else may begin to meanwhile. Raises LocalProtocolError."""
        self.tell(self._tunable().retune(space))
        self._store_settings()

    def check_leader(self) -> None:
        """Raise RefusalError or LocalProtocolError unless this broker is the one that begins re-tunings.

        Only one broker begins, so that two spaces never meet: neighbours that change to different ones would refuse
        each other for ever. It is the one with the smallest name of all that are linked, also while a link is down. A
        broker that has not met a neighbour since it started does not know who that is, and refuses.
        """
        self._tunable()
        for peer in self.neighbours:
            if not self.reach.is_described(peer):
                raise LocalProtocolError(f"{peer} has not been here since this broker started; re-tune when it is")
        first = self.reach.first
        if first != self.reach.name:
            raise RefusalError("leader", f"{first} begins all re-tunings of this network; ask it")

    @property
    def begins_retunings(self) -> bool:
        """Whether `check_leader` raises nothing."""
        try:
            self.check_leader()
        except (RefusalError, LocalProtocolError):
            return False
        return True

    def label_space(self) -> str:
        """The label space in use, as JSON. Raises LocalProtocolError."""
        self._tunable()
        settings: str = json.loads(self._table.settings)["space"]
        return settings

    def _tunable(self) -> Tunable:
        if not isinstance(self._table, Tunable) or not self._table.codec.noted:
            raise LocalProtocolError(f"a table of {self._table.model} has no label space; there is nothing to re-tune")
        return self._table

    def _store_settings(self) -> None:
        """Store what the table needs after a restart besides its items, if it has changed.

        Neighbours are sent nothing before it is stored. Otherwise a neighbour could change to a label space that this
        broker has confirmed, and forgotten in a crash.
        """
        if self._table.codec.noted and self._table.settings != self._settings:
            self._settings, self._settings_stored = self._table.settings, False
            row = SetMeta(TABLE_SETTINGS, self._settings.encode())
            self._settings_rows.put([row], SettingsText(self._settings))

    @property
    def busy(self) -> bool:
        """Whether there is more to do at once."""
        if self.table_pending and self.neighbours:
            return True
        if self.learning and any(self.neighbours[peer].has_frames for peer in self.learning):
            return True
        connections = (self.neighbours[peer].connection for peer in self.behind)
        return any(each is not None and not each.paused for each in connections)

    def work(self, now: Now) -> None:
        """Continue what is pending in the table, and let it learn a few items of one neighbour."""
        neighbours = [each for peer, each in self.neighbours.items() if peer in self.learning and not each.leaving]
        waiting = [
            (each, exchange)
            for each in neighbours
            for exchange in each.exchanges
            if exchange.receiver.has_work(0 if exchange.number else each.got)
        ]
        if any(table.pending for table in self._tables):
            self._step(_STEPS * self._limits.slice)
        if not waiting:
            return
        self._turn += 1
        neighbour, exchange = waiting[self._turn % len(waiting)]
        receiver = exchange.receiver
        relay = receiver.take_relay()
        if relay is not None:
            if neighbour.is_learnt:
                self.learning.pop(neighbour.peer, None)
            self.relayed(relay, now)
            return
        try:
            tells, frame = receiver.apply_next()
        except RemoteProtocolError as error:
            if neighbour.connection is not None:
                self._fail(neighbour.connection, str(error), now)
            return
        if neighbour.is_learnt:
            self.learning.pop(neighbour.peer, None)
        self.tell(tells, exchange.number)
        if frame is not None:
            rows = receiver.take_rows()
            exchange.learnt(frame.message)
            if exchange.number and frame.message.resynced:
                if exchange.has_all and isinstance(exchange.table, ProfileTable):
                    self.tell(exchange.table.confirm(neighbour.peer), exchange.number)
                self.all_due()  # others may wait for it
            elif frame.message.resynced and not neighbour.synced:
                neighbour.step(LinkInput.RESYNCED)
                rows = [*rows, neighbour.row()]
                self.behind[neighbour.peer] = None
            learnt = LearntFrame(receiver, frame)
            self._completion.begin(neighbour.peer, frame.about, learnt, exchange.number)
            neighbour.rows.put(rows, learnt)
            if frame.message.resynced and not exchange.number:
                self.linked(now)
        self._store_settings()

    def rows_stored(self, pending: RowsPending) -> None:
        """Rows are in the log."""
        subject = pending.subject
        if isinstance(subject, SettingsText):
            self._settings_stored = subject.text == self._settings
            self.all_due()
        elif subject is not None:
            subject.frame.stored = True
            subject.receiver.advance()
            self.due[subject.receiver.link] = None

    def undo_rows(self, pending: RowsPending, now: Now) -> None:
        """Rows could not be stored; they are stored later."""
        pending.rows.refused(pending, now)

    # -- heartbeats -----------------------------------------------------------------------------------

    def _beat_later(self, neighbour: Neighbour, connection: Connection, now: Now) -> None:
        self._timers.add(now.monotonic + self._limits.heartbeat, lambda at: self._beat(neighbour, connection, at))

    def _beat(self, neighbour: Neighbour, connection: Connection, now: Now) -> None:
        """Send a sign of life, and check that the neighbour sends some; compare what it holds from time to time."""
        limits = self._limits
        if neighbour.connection is not connection or not self._sessions.is_open(connection):
            return
        if now.monotonic - connection.last_read > limits.link_silence:
            self._counts["closed as silent"] += 1
            self.close(connection, "idle", "the connection was silent for too long", now)
            return
        self._beat_later(neighbour, connection, now)
        self._out.send(connection.id, LinkPing())
        neighbour.beats += 1
        if not all(each.receiver.audit(limits.audit) for each in neighbour.exchanges):
            self._counts["items mended"] += 1
            self._fail(connection, f"an item of {neighbour.peer} was not what it had told; it is compared anew", now)
        elif neighbour.beats % limits.digests == 0:
            if not neighbour.sender.resyncing:
                self._out.send(connection.id, LinkDigest(neighbour.sender.marks.number, *neighbour.sender.digest()))
            sender = neighbour.exchanges[PROFILE_TABLE].sender
            if neighbour.knows_profiles and not sender.resyncing:
                digest = LinkDigest(sender.marks.number, *sender.digest())
                self._out.send(connection.id, LinkNumbered(PROFILE_TABLE, digest))
            if (
                not neighbour.sender.resyncing and not self._table.pending
            ):  # let a table that has nothing to do send the same in fewer items
                self._step(limits.slice)

    # -- the end of a turn ----------------------------------------------------------------------------

    def send(self, now: Now) -> None:  # noqa: ARG002
        """Send what may be sent, and finish the changes that are complete."""
        completion, neighbours = self._completion, self.neighbours
        if self._unposted and not any(table.pending for table in self._tables):
            self._post_all()
        while True:
            if completion.unmarked:
                completion.mark_sent()
            for peer in [*self.due]:
                waiting = neighbours.get(peer)  # None: it has gone since
                for exchange in () if waiting is None else waiting.exchanges:
                    if not exchange.sender.idle and exchange.sender.overflowed:
                        assert waiting is not None
                        self._counts["control queues overflown"] += 1
                        self._resync(waiting, exchange)
            if completion.finished:
                finished, completion.finished = completion.finished, []
                for change in finished:
                    completion.finish(change)
            due = {**self.due, **self.behind}
            self.due.clear()
            for neighbour in neighbours.values() if due else ():
                if neighbour.peer in due and neighbour.connection is not None:
                    self._send(neighbour, neighbour.connection)
                    if not all(each.sender.idle for each in neighbour.exchanges):  # it may go on in any turn
                        self.due[neighbour.peer] = None
            if not completion.finished:
                return

    def _send(self, neighbour: Neighbour, connection: Connection) -> None:
        progress = neighbour.exchanges[0].progress(Offset(neighbour.got))
        if progress is not None:
            self._out.send(connection.id, progress)
        if connection.paused:
            return
        if neighbour.knows_profiles:
            self._send_profiles(neighbour, connection)
        self._ask_places(neighbour)
        if neighbour.peer in self.behind:
            del self.behind[neighbour.peer]
            if neighbour.synced:
                self._forwarding.pump(neighbour, connection)
        if neighbour.sender.idle or not self._settings_stored:
            return
        cursor = neighbour.window.cursor
        sent = cursor if cursor < self._journal.next else Offset(NEVER)  # also if what was to be stored was refused
        relayed = False
        for frame in neighbour.sender.frames(not self._table.pending, sent, _ITEMS):
            relayed = relayed or isinstance(frame, LinkRelay)
            if isinstance(frame, LinkUpdate) and not neighbour.needs_lists and self._tests_lists(frame):
                self._out.send(connection.id, neighbour.announce_lists())
            self._out.send(connection.id, frame)
            if isinstance(frame, LinkUpdate):
                self._counts["link items told"] += len(frame.ids)
                self._counts["link items withdrawn"] += len(frame.drop)
        if neighbour.sender.more or (relayed and cursor < self._journal.end):  # events had to wait for the message
            self.behind[neighbour.peer] = None

    def _send_profiles(self, neighbour: Neighbour, connection: Connection) -> None:
        """Send what the table of profiles has for a neighbour that knows profiles."""
        exchange = neighbour.exchanges[PROFILE_TABLE]
        progress = exchange.progress(Offset(0))
        if progress is not None:
            self._out.send(connection.id, LinkNumbered(PROFILE_TABLE, progress))
        if exchange.sender.idle:
            return
        settled, ready = not exchange.table.pending, self._withdraws(neighbour)
        for frame in exchange.sender.frames(settled, Offset(NEVER), _ITEMS, ready):
            if isinstance(frame, LinkRelay):
                neighbour.behind_profiles.append((exchange.sender.marks.number, frame))
                continue
            if not neighbour.needs_lists and self._tests_lists(frame):
                self._out.send(connection.id, neighbour.announce_lists())
            self._out.send(connection.id, LinkNumbered(PROFILE_TABLE, frame))
            self._counts["profile items told"] += len(frame.ids)
            self._counts["profile items withdrawn"] += len(frame.drop)
        self._post_behind_profiles(neighbour)
        if exchange.sender.more:
            self.behind[neighbour.peer] = None


def _progressed(exchange: TableExchange, message: LinkProgress) -> None:
    """A neighbour has stored or completed control frames. Raises RemoteProtocolError."""
    if (message.heard, message.completed) != exchange.control_progress:
        exchange.sender.marks.progress(message.heard, message.completed)
        exchange.control_progress = message.heard, message.completed


def _lacks(peer: Link) -> str:
    return f"{peer} runs an older version of Weft without profiles; update it"
