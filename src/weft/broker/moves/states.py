"""The states of a session at a broker while it moves, and what each message does in each of them.

The client comes to the new broker, which asks the old one (ASKING), gets a description of the session, and stores a
copy that collects events (ARRIVING). A marker then runs back to the old broker. When that has it, every event goes to
the new broker as well, so the old one gives the session up: it stores the cut, withdraws the subscriptions, and sends
a marker that the session is the other's (FILLING). What the client has not acknowledged is pulled and stored; behind
it comes what the copy has collected, without what the old broker had. Then the session is at home (HOME), and the old
broker may forget it.

Laws:

- Only the broker that asked under the highest stored epoch gets the session, and it has stored its copy before.
- The old broker stores the cut before anybody hears of it, and forgets nothing before the new one has stored it.
- Nothing is sent, the first time or again, before what it says is stored. Whoever waits repeats.

If the client says so, the new broker goes on without an old one that does not answer: the session is at home with what
there is, its client learns of a gap, and what the old broker has is claimed (CLAIMING) and comes late.

A broker that asks and dies has stored nothing of it. So the old one describes the session again, now and then, and is
told that nobody asks for it any more. If the new broker loses its log before it has everything, it says so when the old
one repeats that the session is the new one's. The old one then hands over what it has to whoever asks next.

Besides its state, a session may have left a broker any number of times: a departure, by epoch, until the new broker
has everything; then a tombstone says where it went.
"""

from __future__ import annotations

from enum import Enum

from weft.protocol.move_messages import (
    MoveChunk,
    MoveClaim,
    MoveDone,
    MovedSession,
    MoveElsewhere,
    MoveEnd,
    MoveFinish,
    MoveFlush,
    MoveInvite,
    MoveMessage,
    MovePull,
    MoveRefused,
    MoveRequest,
    MoveUnknown,
)


class MoveState(Enum):
    """Where a session is in its move, at one broker."""

    NONE = "none"
    ASKING = "asking"  # its client is here, and another broker is asked for it; not stored
    ARRIVING = "arriving"  # a copy collects events
    FILLING = "filling"  # it is this broker's, and what the old one has is pulled
    HOME = "home"
    CLAIMING = "claiming"  # it has gone on without the broker that had it, which has yet to hand over what it has


class Reaction(Enum):
    """What a broker does with a message about a move."""

    IGNORE = "nothing: it came twice, or too late"
    ASK = "ask for the session"
    POINT = "say where the session is"
    WAIT = "nothing now: the other broker asks again"
    ANSWER = "store the epoch, then describe the session"
    INSTALL = "store a copy, then send the marker"
    DECLINE = "say that nobody asks for the session"
    END_AGAIN = "say again that the session is the other's, or that it never will be"
    CUT = "give the session up, unless it has changed"
    DENY = "say that nothing is known of this move"
    RETURN = "hand the session on to whoever asks next, if it had left for this broker"
    CLAIM = "claim what the old broker has, if this one has lost it"
    FILL = "take the session over, welcome the client, and pull"
    STORE = "store what was pulled, and pull the rest"
    CLOSE = "tell the client"
    RELEASE = "go on with the session: the broker that asked for it does not take it"
    REMOVE = "remove the copy"
    FOLLOW = "ask where the session is said to be"
    KEEP = "go on without the rest"
    SEND = "send what is pulled"
    FORGET = "forget the session, then say so"
    FINISHED = "nothing is left to be done"
    YIELD = "give the session up to the broker that has gone on without this one"
    YIELD_AGAIN = "say again that the session is the other's, or where it is"
    PULL = "pull what the old broker has"
    STORE_LATE = "store what comes late, and pull the rest"
    DROP = "there is nothing more to be had"
    CLAIM_THERE = "claim it where it is said to be"
    COMPARE = "let the other broker forget the session, if it has gone on here since"


class MoveSide:
    """What a row about a move is, in the log: numbers, as it stores them."""

    ASKED = 0  # the session is at home, and another broker has been answered
    ARRIVAL = 1  # the session comes, or has come and the old broker is to forget it
    DEPARTURE = 2  # the session has left, and the new broker may not have everything
    TOMBSTONE = 3  # the session has left


_R = Reaction
_ROWS: dict[type[MoveMessage], tuple[Reaction, ...]] = {
    # NONE, ASKING, ARRIVING, FILLING, HOME, and CLAIMING for messages of the epoch under which it is claimed
    MoveInvite: (_R.ASK, _R.IGNORE, _R.IGNORE, _R.IGNORE, _R.COMPARE, _R.IGNORE),
    MoveRequest: (_R.POINT, _R.POINT, _R.WAIT, _R.WAIT, _R.ANSWER, _R.IGNORE),
    MovedSession: (_R.DECLINE, _R.INSTALL, _R.IGNORE, _R.IGNORE, _R.IGNORE, _R.IGNORE),
    MoveFlush: (_R.END_AGAIN, _R.END_AGAIN, _R.END_AGAIN, _R.END_AGAIN, _R.CUT, _R.IGNORE),
    MoveEnd: (_R.DENY, _R.DENY, _R.FILL, _R.IGNORE, _R.CLAIM, _R.PULL),
    MoveChunk: (_R.IGNORE, _R.IGNORE, _R.IGNORE, _R.STORE, _R.IGNORE, _R.STORE_LATE),
    MoveRefused: (_R.IGNORE, _R.CLOSE, _R.REMOVE, _R.IGNORE, _R.RELEASE, _R.DROP),
    MoveElsewhere: (_R.IGNORE, _R.FOLLOW, _R.IGNORE, _R.IGNORE, _R.IGNORE, _R.CLAIM_THERE),
    MoveUnknown: (_R.RETURN, _R.RETURN, _R.KEEP, _R.KEEP, _R.RETURN, _R.DROP),
    MoveClaim: (_R.YIELD_AGAIN, _R.YIELD_AGAIN, _R.WAIT, _R.WAIT, _R.YIELD, _R.IGNORE),
    # these concern departures and former arrivals, whatever the state is
    MovePull: (_R.SEND, _R.SEND, _R.SEND, _R.SEND, _R.SEND, _R.SEND),
    MoveFinish: (_R.FORGET, _R.FORGET, _R.FORGET, _R.FORGET, _R.FORGET, _R.FORGET),
    MoveDone: (_R.FINISHED, _R.FINISHED, _R.FINISHED, _R.FINISHED, _R.FINISHED, _R.FINISHED),
}
REACTIONS = {
    (message, state): reaction for message, row in _ROWS.items() for state, reaction in zip(MoveState, row, strict=True)
}
