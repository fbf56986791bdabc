"""What brokers say to each other, as a person reads it. Law: an item is shown as what it stands for, not as bytes."""

from __future__ import annotations

import msgspec

from weft.broker.link_messages import (
    ABOUT,
    LinkEvents,
    LinkHave,
    LinkHello,
    LinkLoose,
    LinkMessage,
    LinkProgress,
    LinkReach,
    LinkRelay,
    LinkUpdate,
)
from weft.routing.table import About, UpdateCodec
from weft.sim.faults.message_text import shown


def link_text(message: LinkMessage, codec: UpdateCodec) -> str:
    """A message between brokers in a line of the trace."""
    match message:
        case LinkUpdate():
            return f"told #{message.number}: {told_text(message, codec) or 'no more advertisements'}"
        case LinkEvents(events):
            return "events " + ", ".join(f"{bytes(event.payload).decode()} at {event.offset}" for event in events)
        case LinkLoose():
            return f"event {bytes(message.payload).decode()}, not durable"
        case LinkHave():
            return f"has {len(message.ids) // 8} {ABOUT[message.about].value}"
        case LinkProgress():
            return f"got {message.got}, heard {message.heard}, completed {message.completed}"
        case LinkHello():
            log = f"log {message.log_id}, incarnation {message.incarnation}, epoch {message.epoch}"
            return f"hello from {message.name}: {log}; has {message.peer_log or 'no log'} up to {message.got}"
        case LinkReach(brokers):
            return "reaches " + ", ".join(name for name, _ in brokers)
        case LinkRelay():
            return f"for {message.destination}, from {message.source}: {message.kind.name.lower()}"
        case _:
            return shown(message)


def told_text(message: LinkUpdate, codec: UpdateCodec) -> str:
    """What an update adds and drops."""
    about = ABOUT[message.about]
    mark = "" if about is About.SUBSCRIPTIONS else "advertised "
    added = [
        f"+{wire} {mark}{codec.decode_item(about, body)}" for wire, body in zip(message.ids, message.items, strict=True)
    ]
    dropped = [f"-{wire}" for wire in message.drop]
    notes = [_note_text(note) for note in message.notes]
    if message.fresh and not notes:
        notes = ["no notes"]
    return "; ".join([*added, *dropped, *notes, *(["that is all"] if message.resynced else [])])


def _note_text(note: object) -> str:
    assert isinstance(note, msgspec.Struct)
    stage = getattr(note, "stage", None)
    return type(note).__name__.lower() + (f" {stage.value}" if stage is not None else "")
