"""A node of the ring that stores subscriptions and delivers events, without sockets and clocks: its whole life.

What is promised:

- An event that is published after a subscription was `Subscribed` is delivered to it once if it matches, or is owed to
  the subscriber's node: then it is delivered when it is published again, after that node has `Returned`.
- This holds while nodes join and leave, while fewer than `replicas` nodes die within one repair (about 5 s), and while
  the ring is cut into parts, once these can reach each other again.
- A node that is started again with its application's subscriptions gets what it is owed. One that comes back without
  them has none; what it stored for others is recalled from copies.
- Where no complete copy of a key's records can be reached, nobody answers for it. Requests wait and nothing is done,
  until the key's owner is back, or for `abandon` microseconds: then subscribers store again what was lost, and events
  wait for a further 1.25 `reissue`.

How a node lives (`Life` in `weft.ring.keys_in_hand` is the table):

1. `join` looks for its place; its successor hands it the keys between the predecessor's and its own.
2. While it serves, every message is handled in `receive`, and time passes in `tick`: Chord mends the ring, keys follow,
   what was asked and not answered is asked again, subscriptions are stored anew.
3. `leave` takes no new work, waits for a moment for what was begun, has more copies made, and hands everything to the
   successor.

Whatever takes more than one message is a piece of work with a named state (`weft.ring.work`). Each part of the node
takes the answers of its own work: `keys_in_hand` moves keys, `record_keeper` stores and copies, `visits` delivers,
`own_interest` places the application's subscriptions and events, and `groups`, `group_cells`, `group_root`,
`group_regions` and `group_merging` know topic groups.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from weft.algebra.profile import Meeting, Profile
from weft.errors import LocalProtocolError, RingError
from weft.index.base import AnyEvent
from weft.language.any_filter import as_filter
from weft.language.ast import Filter
from weft.language.format import format_filter
from weft.model.event import attributes_of
from weft.ring.chord import ANSWER, ChordNode
from weft.ring.group_cells import GroupCells
from weft.ring.group_regions import RegionServers
from weft.ring.group_root import GroupRoots
from weft.ring.group_state import StateStore
from weft.ring.groups import REVIEW, Groups
from weft.ring.identifiers import Key
from weft.ring.keys_in_hand import SETTLE, KeysInHand, Life
from weft.ring.messages import (
    ChordEffect,
    Joined,
    JoinFailed,
    LookedUp,
    NodeAddress,
    NodeRef,
    OwnershipChanged,
    SendTo,
)
from weft.ring.own_interest import Cell, OwnInterest, Publishing, Restoring, Subscribing, Unsubscribing
from weft.ring.record_keeper import RecordKeeper, RingReply
from weft.ring.rendezvous_messages import (
    AskLoad,
    AskRange,
    AskTopics,
    CopyRecords,
    DeliverEvent,
    Done,
    EventId,
    Examine,
    GiveCells,
    GrantCells,
    Handover,
    HandoverPart,
    Hold,
    HostRequest,
    JoiningFailed,
    LeftRing,
    LoadIs,
    NeedKeys,
    OwnerRequest,
    PassStates,
    Publication,
    RangeIs,
    Recall,
    Recalled,
    RegionRequest,
    Release,
    ReleaseAll,
    RemoveRecord,
    Reshape,
    Returned,
    Review,
    RingAnswer,
    RingEffect,
    RingMessage,
    RingRequest,
    RingSend,
    Store,
    TopicsAre,
    Visit,
    WorkAnswer,
)
from weft.ring.ring_settings import RingSettings
from weft.ring.stored_records import RecordStore
from weft.ring.visits import Visits
from weft.ring.work import NO_TOKEN, RingWork, WorkState, WorkTable

TopicNames = str | Collection[str]  # one topic, or several
_FINISH = 2 * ANSWER  # for which a node that leaves waits for what was begun
_PROBE = 2 * ANSWER  # between two looks whether a node that is owed events is back
_AGAIN = 5 * ANSWER  # after which one that is back is reported again, and then after twice as long each time
_MOST_AGAIN = 4 * _AGAIN
_PAUSED = ANSWER  # a node that did not run for so long may have been considered dead


@dataclass(slots=True, eq=False)
class OwedProbe(RingWork):
    """A question to a node that is owed events."""


class RendezvousNode:
    """One node: `subscribe`, `publish` and `receive` return what is to be done."""

    def __init__(self, chord: ChordNode, settings: RingSettings, rng: np.random.Generator) -> None:
        if not chord.space == settings.mapping.space:
            raise RingError(
                f"the keys are on a circle of {settings.mapping.space.size}, the ring has {chord.space.size}"
            )
        self.chord = chord
        self.settings = settings
        self.work = table = WorkTable(chord, self._do)
        self.records = RecordStore(settings)
        self.states = StateStore(chord.space)
        settle = SETTLE if settings.groups is None else SETTLE + 3 * REVIEW  # two members may have a cell by then
        self.keys = KeysInHand(
            chord, table, self.records, self.states, settings.replicas, settings.abandon, settings.learn, settle
        )
        self.keeper = RecordKeeper(chord, table, self.keys, self.records, settings)
        self.visits = Visits(chord, table, self.keys, self.keeper, settings.sharing.sharing)
        self.groups: Groups | None = None
        self._roots: GroupRoots | None = None
        self._regions: RegionServers | None = None
        if settings.groups is not None:
            self.groups = Groups(chord, table, self.keys, self.keeper, self.states, settings.groups, self._uses)
            self._regions = RegionServers(table, self.keys, self.states)
            self._roots = GroupRoots(
                chord, table, self.keys, self.states, self.groups, settings.groups, settings.topics, rng
            )
        self.own = OwnInterest(chord, table, settings, self.groups, rng)
        self.keys.restore = self.own.restore
        self._published = 0
        self._owed: dict[NodeAddress, int] = {}  # nodes that are owed events, and when they were asked or were back
        self._again: dict[NodeAddress, int] = {}  # until those that are back are reported again
        self._gone: dict[NodeAddress, tuple[int, int]] = {}  # those of them that have left: when to try again
        self._ran_at: int | None = None
        self._leave_by: int | None = None
        table.handle(OwedProbe, self._probed)

    def _uses(self, topic: str) -> bool:
        return self.own.uses(topic)

    @property
    def me(self) -> NodeRef:
        """This node as others know it."""
        return self.chord.me

    @property
    def life(self) -> Life:
        """What it is doing."""
        return self.keys.life

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics whose groups this node is a member of."""
        return () if self.groups is None else self.groups.topics

    # -- the application -------------------------------------------------------------------------------

    def subscribe(
        self, number: int, topic: TopicNames, filter: Filter | str, now: int, meeting: Meeting = Meeting.COVERING
    ) -> list[RingEffect]:
        """Store a subscription to one topic or to several; `Subscribed` follows.

        A node that is started again uses other numbers: what its former life has stored stays until it is replaced, so
        that nothing is missed meanwhile. Raises RingError if the filter cannot be placed.
        """
        return self.own.subscribe(number, self._leaves(topic), filter, now, meeting)

    def unsubscribe(self, number: int, now: int) -> list[RingEffect]:
        """Remove a subscription; nothing more is delivered to it, and `Unsubscribed` follows."""
        return self.own.unsubscribe(number, now)

    def _leaves(self, topic: TopicNames) -> list[str]:
        topics = (topic,) if isinstance(topic, str) else topic
        return sorted({leaf for each in topics for leaf in self.settings.topics.leaves(each)})

    def publish(
        self, topic: TopicNames, event: AnyEvent | Profile, now: int, id: EventId | None = None, body: bytes = b""
    ) -> tuple[EventId, list[RingEffect]]:
        """Deliver an event, or one with ranges, to all who want it of one topic or several; `PublicationDone` follows.

        An event that may be published again, after a restart for example, needs an `id` that stays the same. What is
        delivered names one of the leaf topics under which the event was found. A node that is about to leave refuses.
        """
        if self.life in (Life.FINISHING, Life.LEAVING, Life.LEFT):
            raise LocalProtocolError("this node is leaving the ring; publish at another one")
        self._published += 1
        event_id = id or EventId(f"{self.me.address}#{self.me.life}", self._published)
        mapping = self.settings.mapping
        events: dict[str, Publication] = {}
        cells: list[Cell] = []
        for leaf in self._leaves(topic):
            if isinstance(event, Profile):
                keys = mapping.of_profile(leaf, event)
                events[leaf] = Publication(event_id, leaf, region=format_filter(as_filter(event.region)), body=body)
            else:
                keys = mapping.of_event(leaf, event)
                events[leaf] = Publication(event_id, leaf, dict(attributes_of(event)), body=body)
            cells += [Cell(leaf, key) for key in keys]
        return event_id, self.own.publish(events, cells, now)

    def owe(self, addresses: Collection[NodeAddress], now: int) -> None:
        """These nodes are owed events: `Returned` follows, perhaps repeatedly, when they answer."""
        self._owed = {address: self._owed.get(address, now) for address in sorted(addresses)}
        self._again = {address: pause for address, pause in self._again.items() if address in self._owed}
        self._gone = {address: due for address, due in self._gone.items() if address in self._owed}

    def reshape(
        self, topic: str, now: int, *, depth: int | None = None, rotation: int | None = None
    ) -> list[RingEffect]:
        """Give a topic group's tree another depth or rotation distance; `Reshaped` follows once the root knows."""
        if self.groups is None:
            raise LocalProtocolError("this ring has no topic groups")
        tree = self.settings.group_rule.tree(self.chord.space, topic)
        replace(tree, depth=tree.depth if depth is None else depth, rotation=rotation or 0)  # raises RingError
        return self.groups.send_to_root(Reshape(NO_TOKEN, Key(0), "", topic, depth, rotation), now)

    def confirm(self, id: EventId) -> list[RingEffect]:
        """The application has stored an event that was `Offered`: answer the node that delivered it."""
        return self.own.confirm(id)

    # -- joining and leaving ---------------------------------------------------------------------------

    def wait(self, members: Iterable[NodeRef]) -> None:
        """Begin no ring: there are, or were, these members, and one of them will be joined."""
        self.chord.remember(*members)
        self.keys.begin_to_join()

    def join(self, known: NodeAddress, now: int) -> list[RingEffect]:
        """Join the ring of a node that is known; `JoinedRing` or `JoiningFailed` follows."""
        effects = self.chord.join(known, now)
        if self.life is not Life.JOINING:
            self.keys.begin_to_join()
        return self._do(effects, now)

    def leave(self, now: int) -> list[RingEffect]:
        """Take no new work, finish what was begun, hand the data over and leave; `LeftRing` follows.

        Its subscriptions stay until they expire: events for them are owed to it when it is back. Remove those that are
        not wanted any more before.
        """
        if self._leave_by is not None or self.life is Life.LEFT:
            return []
        self._leave_by = now + _FINISH
        if self.life is Life.JOINING:
            self.keys.to(Life.LEFT)
            return self._go_on_leaving(now)
        self.keys.to(Life.FINISHING)
        effects = [] if self.groups is None else self.groups.leave(now)
        return [*effects, *self._go_on_leaving(now)]

    def _go_on_leaving(self, now: int) -> list[RingEffect]:
        """Hand over when nothing is unfinished, or when it has taken too long: the publisher's log has the events."""
        if self._leave_by is None or self.chord.left:
            return []
        effects: list[RingEffect] = []
        if self.life is Life.FINISHING:
            unfinished = self.work.count(Publishing, Subscribing, Unsubscribing, Restoring) + (
                0 if self.groups is None else self.groups.leaving
            )
            if unfinished and now < self._leave_by:
                return []
            effects += self.keys.leave(now)
        if self.life is Life.LEFT:
            effects += [*self._do(self.chord.leave(), now), LeftRing()]
        return effects

    def forget(self, address: NodeAddress) -> list[RingEffect]:
        """A member will never come back: nothing waits for it any more, and its subscriptions are dropped here."""
        member = self.chord.members.pop(address, None)
        self.records.forget_home(address, 0 if member is None else member.node.life)
        self.keys.forgotten(address)
        self.keeper.unshare()
        effects: list[RingEffect] = [] if address not in self._owed else [Returned(address)]
        return effects if member is None else [*effects, *self._do(self.chord.has_left(member.node), 0)]

    # -- driving ---------------------------------------------------------------------------------------

    def receive(self, sender: NodeRef, messages: Sequence[RingMessage], now: int) -> list[RingEffect]:
        """Messages of another node."""
        if self.chord.left:
            return []
        effects = self._woken(now)
        self.visits.heard(sender.address)
        if not self.chord.joining:
            effects += self._do(self.chord.heard(sender), now)
        for message in messages:
            if self.chord.left:
                break
            if isinstance(message, Done):
                effects += self.work.answered(message.token, message.ok, now)
            elif isinstance(message, RingAnswer):
                effects += self.work.answered(message.token, message, now)
            elif isinstance(message, RingRequest):
                effects += self._asked(sender, message, now)
            else:
                effects += self._do(self.chord.receive(sender, [message], now), now)
            effects += self._go_on_leaving(now)
        return effects

    def tick(self, now: int) -> list[RingEffect]:
        """Time passes. To be called several times within `PERIOD`."""
        if self.chord.left:
            return []
        effects = [*self._woken(now), *self._do(self.chord.tick(now), now), *self.work.tick(now)]
        effects += [*self.keys.tick(now), *self.keeper.tick(now), *self._look_for_owed(now)]
        if self.groups is not None and self._roots is not None and self.life is Life.SERVING:
            effects += [*self._roots.tick(now), *self.groups.tick(now)]
        if self.life is Life.SERVING:
            effects += self.own.tick(now)
        return [*effects, *self._go_on_leaving(now)]

    def _woken(self, now: int) -> list[RingEffect]:
        """Notice that this node has not run for a while."""
        before, self._ran_at = self._ran_at, now
        if before is not None and now - before > _PAUSED:
            self.keys.was_cut_off(now)
        return []

    def _do(self, effects: list[ChordEffect], now: int) -> list[RingEffect]:
        """What Chord wants done."""
        done: list[RingEffect] = []
        for effect in effects:
            match effect:
                case SendTo(to, message):
                    done.append(RingSend(to, message))
                case LookedUp(token, _, owner):
                    done += self.work.looked_up(token, owner, now)
                case OwnershipChanged():
                    done += self.keys.reconcile(now)
                case JoinFailed(reason):
                    done.append(JoiningFailed(reason))
                case Joined():
                    self.keys.joined()  # `JoinedRing` follows when keys are in hand
        return done

    def _look_for_owed(self, now: int) -> list[RingEffect]:
        effects: list[RingEffect] = []
        for address, at in self._owed.items():
            if now >= at:
                self._owed[address] = now + _PROBE
                if address not in self.chord.members and now >= self._gone.get(address, (0, 0))[0]:
                    pause = 2 * self._gone.get(address, (0, _PROBE))[1]
                    self._gone[address] = now + pause, pause
                    effects.append(Returned(address))  # it has left, and has handed over what it knew
                work = OwedProbe()
                self.work.begin(work, WorkState.ASKING)
                effects += self.work.ask(work, address, address, AskRange(NO_TOKEN), now)
        return effects

    def _probed(self, work: OwedProbe, part: NodeAddress, answer: WorkAnswer, now: int) -> list[RingEffect]:
        self.work.end(work)
        if not isinstance(answer, RangeIs) or answer.after is None or part not in self._owed:
            self._again.pop(part, None)
            return []
        pause = self._again.get(part, _AGAIN)
        self._owed[part], self._again[part] = now + pause, min(2 * pause, _MOST_AGAIN)
        return [Returned(part)]

    # -- requests of others ----------------------------------------------------------------------------

    def _asked(self, sender: NodeRef, message: RingRequest, now: int) -> list[RingEffect]:
        """Do what another node asks, and answer. What only the owner of a key may do is refused by others."""
        reply = RingReply(sender.address, message.token)
        if isinstance(message, OwnerRequest | RemoveRecord):
            key = message.slot.key if isinstance(message, RemoveRecord) else message.key
            if not self.keys.serves(key):
                return reply.done(ok=False)
        match message:
            case DeliverEvent():
                return self.own.deliver(sender.address, message)
            case Store() | RemoveRecord() | Visit():
                return self._asked_owner(message, now, reply)
            case Handover():
                accepted, effects = self.keys.handed(sender, message, now)
                return [*reply.done(accepted), *effects]
            case HandoverPart():
                return reply.done(self.keys.take_part(message, now))
            case CopyRecords():
                return reply.done(self.keys.copied(message, now))
            case Recall():
                return self._answer(reply, self.keys.recall(message))
            case AskRange():
                return self._answer(reply, self.keys.range_is())
            case NeedKeys():
                self.keys.needed(sender)
                return reply.done()
            case PassStates(_, _, states):
                return reply.done(self.keys.merge_states(states))
            case Hold():
                return reply.done(self.keeper.hold(sender, message))
            case ReleaseAll(_, epoch):
                self.keeper.release_all(sender, epoch)
                return reply.done()
            case Release():
                self.keeper.release(sender, message, now)
                return reply.done()
            case AskLoad():
                return self._answer(reply, LoadIs(NO_TOKEN, self.me, self.keeper.known_load(now)))
            case Examine():
                return self.visits.examine_for(sender, message, now, reply)
            case AskTopics():
                return self._answer(reply, TopicsAre(NO_TOKEN, self.topics))
        if self.groups is None or self._roots is None or self._regions is None:
            return reply.done(ok=False)
        match message:
            case HostRequest():
                return self._roots.asked(message, now, reply)
            case RegionRequest():
                return self._regions.asked(message, now, reply)
            case GrantCells():
                return self.groups.cells.granted(message, now, reply)
            case GiveCells():
                return self.groups.cells.given(message, now, reply)
            case Review():
                return [*reply.done(), *self.groups.review(message, now)]
        raise AssertionError(message)

    def _asked_owner(self, message: Store | RemoveRecord | Visit, now: int, reply: RingReply) -> list[RingEffect]:
        """What the owner of a key does for others: in a topic group only for cells that are placed there."""
        if self.groups is not None and (wanted := self._not_here(self.groups.cells, message, now)) is not None:
            return [*reply.done(ok=False), *wanted]
        match message:
            case Store(_, key, records):
                # other members may have cells of a member that is learning, and be visited: that is not complete
                complete = self.groups is None or not self.keys.learning(key, now)
                return self.keeper.store(records, now, reply, complete)
            case RemoveRecord(_, slot, stamp):
                return self.keeper.remove(slot, stamp, now, reply)
            case Visit(_, key, event):
                if self.keys.learning(key, now):
                    return reply.done(ok=False)
                return self.visits.visit(key, event, now, reply)

    @staticmethod
    def _not_here(cells: GroupCells, message: Store | RemoveRecord | Visit, now: int) -> list[RingEffect] | None:
        """What is done about cells that are not under the member that they are asked for under; None if they are."""
        match message:
            case Store(_, member, records):
                asked = [(record.topic, record.cells) for record in records]
            case RemoveRecord(_, slot, _, removed):
                member, asked = slot.key, [(slot.topic, removed)]
            case Visit(_, member, event, visited):
                asked = [(event.topic, visited)]
        if all(cells.has(topic, member, some) for topic, some in asked):
            return None
        return [effect for topic, some in asked for effect in cells.wanted(topic, member, some, now)]

    @staticmethod
    def _answer(reply: RingReply, answer: Recalled | RangeIs | LoadIs | TopicsAre) -> list[RingEffect]:
        return [RingSend(reply.to, msgspec.structs.replace(answer, token=reply.token))]
