"""Profiles as applications publish and see them: events that are regions and last for a while."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from weft.client.events import outgoing
from weft.client.options import filter_text
from weft.errors import OptionError
from weft.language.any_filter import AnyFilter
from weft.model.value import from_micros
from weft.protocol.messages import ProfilePublished, PublishProfile

ATTRIBUTE = "weft.profile."  # how the names of a notice's attributes begin
ProfileChange = Literal["appeared", "changed", "ended"]


class PublishedProfile(NamedTuple):
    """A profile that the broker has stored."""

    id: str
    version: int  # a higher one replaces a lower one
    expires: datetime


class ProfileNotice(NamedTuple):
    """What has become of a profile, as a subscription is told; the payload is that of the event.

    `reason` says why it has ended: "expired", "withdrawn" or "left" (the subscription has another filter). The region
    is empty then.
    """

    change: ProfileChange
    source: str  # the name of the client that has published it
    id: str
    version: int
    expires: datetime
    region: str = ""
    reason: str = ""


def profile_notice(attributes: Mapping[str, Any]) -> ProfileNotice | None:
    """The notice that an event is; None for any other event.

    >>> profile_notice({"x": 1}) is None
    True
    """
    change = attributes.get(f"{ATTRIBUTE}change")
    if change is None:
        return None
    get = attributes.get
    source, name, version = (attributes[ATTRIBUTE + each] for each in ("source", "id", "version"))
    ends = from_micros(attributes[f"{ATTRIBUTE}expires"])
    region, reason = get(f"{ATTRIBUTE}region", ""), get(f"{ATTRIBUTE}reason", "")
    return ProfileNotice(change, source, name, version, ends, region, reason)


def publish_message(
    id: str, region: AnyFilter, duration: float | timedelta, payload: Any, token: int
) -> Callable[[int], PublishProfile]:
    """The request that publishes a profile, by its number; no other has this token.

    Raises FilterError, EventError or OptionError.
    """
    if not isinstance(id, str) or not id:
        raise OptionError(f"the id of a profile is a string that is not empty, not {id!r}")
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e11:
        raise OptionError(f"duration is how long the profile lasts, in seconds above 0, not {duration!r}")
    text, body = filter_text(region), outgoing({}, payload).payload
    micros = max(1, round(seconds * 1e6))
    return lambda number: PublishProfile(number, id, text, micros, body, token)


def published(id: str, answer: ProfilePublished) -> PublishedProfile:
    """What a broker has stored."""
    return PublishedProfile(id, answer.version, from_micros(answer.expires))
