"""Recovery: a broker as the rows of its log describe it.

After a restart every durable session, queue and subscription is what its rows say. What was delivered and not
acknowledged is delivered again, with an attempt above 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.algebra.bulk import columns_of_texts
from weft.broker.advertisements import split_id
from weft.broker.links.links import Links
from weft.broker.links.neighbour import TABLE_SETTINGS, received_interest
from weft.broker.moves.moves import Moves
from weft.broker.parts import BrokerParts
from weft.broker.profiles.home import HomeProfiles
from weft.broker.profiles.notices import QUERIES, ProfileNotices
from weft.broker.queue import SHARED, AnyMember, Queue, QueueOptions, queue_of, read_options
from weft.broker.sessions import ClientQueue, ClientSubscription, Session
from weft.errors import FilterError, LogError
from weft.index.base import SubId
from weft.language.ast import Filter
from weft.language.predicate import Predicates
from weft.language.text import parse_many
from weft.log.base import Offset, SeatId, State, SubRow
from weft.model.rate import split_rate
from weft.protocol.link_messages import PROFILE_TABLE
from weft.protocol.messages import SubNumber
from weft.routing.table import ClientId, Kept


class Recovery:
    """Takes back what the log has, before any connection comes."""

    def __init__(  # noqa: PLR0913, PLR0917 - the parts that it restores
        self,
        parts: BrokerParts,
        links: Links,
        moves: Moves,
        homes: HomeProfiles,
        notices: ProfileNotices,
        predicates: Predicates,
    ) -> None:
        self._homes, self._notices, self._profile_table = homes, notices, parts.profile_table
        self._journal, self._sessions, self._queues = parts.journal, parts.sessions, parts.queues
        self._reader, self._matcher, self._completion = parts.reader, parts.matcher, parts.completion
        self._links, self._moves, self._predicates = links, moves, predicates

    def restore(self, kept: State) -> None:
        """Restore everything. Raises LogError for rows that do not fit together.

        The table has all local subscriptions and everything that neighbours sent before it sends anything.
        """
        sessions = self._sessions
        for row in kept.sessions.values():
            session = Session(row.id, row.name, row.owner, sessions.bucket_of(row.owner))
            session.epoch, session.expires = row.epoch, row.expires
            session.pub_epoch, session.pub_received = row.pub_epoch, row.pub_seq
            sessions.by_id[session.id] = sessions.by_name[session.name] = session
        left = self._moves.restore(kept)
        queues: dict[int, Queue] = {}
        replays: dict[int, Queue] = {}
        members: list[tuple[SubRow, AnyMember]] = []
        for row_ in kept.subs.values():
            options = read_options(row_)
            if (options.queue if not isinstance(options, QueueOptions) else row_.seat) in left:
                continue  # it has left with its session
            if not isinstance(options, QueueOptions):
                members.append((row_, options))
            else:
                queues[row_.seat] = self._queue(row_, options, kept)
                if options.replay and row_.floor < row_.since:
                    replays[options.replay] = queues[row_.seat]
        adverts = self._adverts(kept)
        self._subscriptions(queues, members, kept, adverts)
        self._moves.arrivals.restored()
        for consumer, queue in replays.items():
            self._replay(SeatId(consumer), queue)
        gone = {int(seat) for queue in left.values() for seat in queue.members}
        profiles, queries = self._homes.restore(kept), self._notices.restore(kept, gone)
        if profiles or queries or kept.links:
            own = {QUERIES: queries} if queries else {}
            links = received_interest(kept, self._profile_table.codec, PROFILE_TABLE)
            self._profile_table.restore(Kept(profiles, own, links))
        self._links.uses_profiles = bool(profiles or queries)
        if kept.links:
            self._links.restore(kept)
        self._notices.restored(queries)
        if self._links.reach.name:  # it may have had neighbours, which clients still wait for
            self._completion.restored()

    def _replay(self, consumer: SeatId, queue: Queue) -> None:
        """A queue begins with events that are older than its subscription."""
        if consumer not in queue.members:  # the subscription that asked for them has ended
            queue.advance(max(queue.cursor, queue.replay_until))
            queue.replay_until = Offset(0)
            return
        assert queue.session is not None
        sub = self._sessions.by_id[queue.session].subs[queue.members[consumer]]
        self._reader.replays[queue] = consumer, self._filters([sub.text])[0]

    def _adverts(self, kept: State) -> dict[ClientId, dict[SubId, Filter]]:
        """The advertisements of each session."""
        found: dict[ClientId, dict[SubId, Filter]] = {}
        journal = self._journal
        for advert in kept.adverts.values():
            consumer, number = split_id(advert.id)
            journal.next_consumer = SeatId(max(journal.next_consumer, consumer + 1))
            owner = self._sessions.by_id.get(advert.session)
            if owner is None:
                raise LogError(f"advertisement {advert.id} in the log belongs to no session")
            found.setdefault(ClientId(str(owner.id)), {})[SubId(advert.id)] = self._filters([advert.filter])[0]
            owner.adverts[number] = advert.id, advert.filter
        return found

    def _filters(self, texts: Sequence[str]) -> list[Filter]:
        """Filters that were stored. Raises LogError: one may call a predicate that this process does not have, or be
        beyond a limit that was higher when it was added.
        """
        try:
            return parse_many(texts, self._predicates)
        except FilterError as error:
            raise LogError(
                f"a filter in the log cannot be read: {error}; start the broker with the predicates and "
                "the limits (weft.model.limits.LIMITS) that it had before"
            ) from None

    def _queue(self, row: SubRow, options: QueueOptions, kept: State) -> Queue:
        queue = queue_of(row, options)
        queue.again_below = kept.next
        queue.stored = True
        queue.counted = max(queue.cursor, queue.replay_until) >= kept.next
        self._queues.all[queue] = None
        if queue.session is None:
            self._queues.shared[queue.owner, queue.share] = queue
        else:
            session = self._sessions.by_id.get(queue.session)
            if session is None:
                raise LogError(f"queue {row.number} at seat {row.seat} in the log belongs to no session")
            session.queues[queue.number] = queue
        return queue

    def _subscriptions(
        self,
        queues: dict[int, Queue],
        members: list[tuple[SubRow, AnyMember]],
        kept: State,
        adverts: dict[ClientId, dict[SubId, Filter]],
    ) -> None:
        """All subscriptions at once. Cost: that of the table, and some 20 us each."""
        split = [split_rate(row.filter) for row, _ in members]
        texts = [text for text, _ in split]
        try:
            homes = [queues[options.queue] for _, options in members]
        except KeyError as error:
            raise LogError(f"a subscription in the log belongs to queue seat {error}, which is not there") from None
        numbers = [SubNumber(row.number) for row, _ in members]
        consumers = [row.seat for row, _ in members]
        matched: list[ClientQueue] = [*homes]  # the queues that match: while a session comes, others collect for it
        for at, seat, collector in self._moves.arrivals.collecting([row for row, _ in members]):
            consumers[at], matched[at] = seat, collector
            collector.members[seat] = numbers[at]
        table = self._matcher.table
        filters = self._filters(texts)
        boxes = columns_of_texts(texts, table.schema, self._predicates)
        slots = self._matcher.add_many(boxes, consumers, matched, numbers)
        for slot, (_, rate) in zip(slots, split, strict=True):
            if rate is not None:  # what was let through before is not known: nothing is left of it
                self._matcher.limit(slot, rate, kept.at, full=False)
        settings = kept.meta.get(TABLE_SETTINGS, b"").decode()
        links = received_interest(kept, table.codec)
        table.restore(Kept(dict(zip(slots, filters, strict=True)), adverts, links, settings))
        for (row, options), slot, queue in zip(members, slots, homes, strict=True):
            sub = ClientSubscription(
                SubNumber(row.number), row.filter, slot, row.seat, queue, row.since, profiles=options.profiles
            )
            queue.members[row.seat] = sub.number
            if row.session == SHARED:
                self._queues.shared_members[queue] = sub
            else:
                self._sessions.by_id[row.session].subs[sub.number] = sub
