"""The options of clients and subscriptions, checked: a wrong one is an OptionError before anything is sent."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from weft.client.session import ConnectionPolicy
from weft.client.subscription import SubscriptionOptions
from weft.client.tls import client_context
from weft.errors import FilterError, FilterSyntaxError, OptionError
from weft.language.any_filter import AnyFilter, as_filter
from weft.model.door import is_unicode
from weft.model.rate import Rate, with_rate
from weft.model.value import to_micros
from weft.protocol.addresses import Address

_NAME = 256  # characters

TokenSource = str | bytes | Callable[[], str | bytes] | None


def connection_policy(  # noqa: PLR0913, PLR0917 - the options of a client
    address: str | Sequence[str],
    token: TokenSource,
    tls: ssl.SSLContext | None,
    ca: str | None,
    certificate: tuple[str, str] | None,
    timeout: float,
    heartbeat: float,
    retry_for: float | None,
) -> ConnectionPolicy:
    """How a client connects. Raises OptionError.

    >>> [str(each) for each in connection_policy("weft://a", None, None, None, None, 10, 10, None).addresses]
    ['weft://a:9338']
    """
    given = [address] if isinstance(address, str) else list(address)
    if not given:
        raise OptionError("no address is given; pass weft://host:port")
    addresses = tuple(Address.parse(each) for each in given)
    for what, value in (("timeout", timeout), ("heartbeat", heartbeat)):
        if not value > 0:
            raise OptionError(f"{what} is a number of seconds above 0, not {value!r}")
    if tls is not None and (ca is not None or certificate is not None):
        raise OptionError("pass either tls=, or ca= and certificate=: a context has its own files")
    if (tls or ca or certificate) and not any(each.tls for each in addresses):
        raise OptionError(f"{addresses[0]} is not encrypted; write weft+tls://")

    def credentials() -> bytes:
        found = token() if callable(token) else token
        return b"" if found is None else found.encode() if isinstance(found, str) else bytes(found)

    context = tls
    if ca or certificate:
        files = (None, None) if certificate is None else map(Path, certificate)
        context = client_context(None if ca is None else Path(ca), *files)
    return ConnectionPolicy(addresses, credentials, context, timeout, heartbeat, retry_for=retry_for)


def subscription_options(  # noqa: PLR0913, PLR0917 - the options of a subscription
    name: str,
    shared: bool,
    since: int | datetime | None,
    ordered: bool,
    lag: int,
    expires: float | timedelta | None = None,
    profiles: str | None = None,
) -> SubscriptionOptions:
    """What a subscription is. Raises OptionError."""
    check_name(name)
    if profiles not in (None, "covering", "overlap"):
        raise OptionError(f"profiles is 'covering' or 'overlap', not {profiles!r}")
    if profiles is not None and shared:
        raise OptionError("a shared subscription is not shown profiles; leave shared= out")
    kept = seconds(expires)
    if kept and (shared or not name):
        raise OptionError("only a subscription with a name that is not shared is kept, so only that can expire")
    if shared and not name:
        raise OptionError("a shared subscription needs a name, the same one for all its consumers")
    if shared and since is not None:
        raise OptionError("a shared subscription begins with new events; leave since= out")
    if not 0 <= lag < 1 << 63:
        raise OptionError(f"lag is a number of events, not {lag}")
    offset = moment = None
    if isinstance(since, datetime):
        moment = max(0, to_micros(since if since.tzinfo is not None else since.replace(tzinfo=UTC)))
    elif since is not None:
        if isinstance(since, bool) or not isinstance(since, int) or not 0 <= since < 1 << 63:
            raise OptionError(f"since is an offset or a datetime, not {since!r}")
        offset = since
    durable = bool(name) or since is not None or profiles is not None
    share = name if shared else ""
    return SubscriptionOptions(durable, ordered, share, offset, moment, lag, expires=kept, profiles=profiles or "")


def filter_text(filter: AnyFilter) -> str:
    """A filter as it is sent. Raises FilterError."""
    try:
        text = str(as_filter(filter))
    except FilterSyntaxError as error:
        if not isinstance(filter, str) or not error.message.startswith("unknown predicate"):
            raise
        text = filter  # the broker may know it
    if not is_unicode(text):
        raise FilterError("the filter is not valid Unicode text")
    return text


def subscription_text(filter: AnyFilter, rate: str | Rate | None) -> str:
    """A filter as it is sent, with a rate or without. Raises FilterError."""
    given = Rate.parse(rate) if isinstance(rate, str) else rate
    return with_rate(filter_text(filter), given)


def check_name(name: str) -> str:
    """A name that a session may have. Raises OptionError."""
    if not isinstance(name, str) or len(name) > _NAME or not is_unicode(name):
        raise OptionError(f"a name is a string of at most {_NAME} characters")
    return name


def seconds(expires: float | timedelta | None) -> int:
    """How long a session is kept, in whole seconds; 0 is as long as the broker keeps any. Raises OptionError."""
    if expires is None:
        return 0
    given = expires.total_seconds() if isinstance(expires, timedelta) else expires
    if not given > 0:
        raise OptionError(f"expires is a number of seconds above 0, not {expires!r}")
    return max(1, round(given))
