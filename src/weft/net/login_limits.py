"""Failed log-ins slow their address down. Laws: an address that keeps failing waits twice as long after each failure,
up to a bound; while it waits nothing that it says is looked at; memory is bounded, whatever comes from wherever.

An address is one of IPv4, or a /64 network of IPv6, which is what one customer has. All Unix sockets are one address.
"""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address


class LoginLimits:
    """Who may try to log in now. Times are monotonic microseconds.

    >>> limits = LoginLimits(free=1, first=10, longest=80)
    >>> limits.failed("1.2.3.4", 0), limits.may_try("1.2.3.4", 1)
    (None, True)
    >>> limits.failed("1.2.3.4", 1), limits.may_try("1.2.3.4", 10), limits.may_try("1.2.3.4", 11)
    (None, False, True)
    """

    def __init__(self, free: int = 5, first: int = 1_000_000, longest: int = 300_000_000, most: int = 10_000) -> None:
        self._free = free  # failures that cost nothing
        self._first = first
        self._longest = longest
        self._most = most
        self._failures: dict[str, tuple[int, int]] = {}  # how many, and until when it waits; the last to fail is last

    def __len__(self) -> int:
        return len(self._failures)

    def may_try(self, address: str, monotonic: int) -> bool:
        """Whether an address need not wait."""
        known = self._failures.get(network_of(address))
        return known is None or known[1] <= monotonic

    def failed(self, address: str, monotonic: int) -> None:
        """A log-in failed. What has long been quiet is forgotten."""
        failures = self._failures
        place = network_of(address)
        number, until = failures.pop(place, (0, 0))
        if until + self._longest < monotonic:
            number = 0
        number += 1
        wait = min(self._first << min(number - self._free - 1, 32), self._longest) if number > self._free else 0
        failures[place] = number, monotonic + wait
        while len(failures) > self._most:
            del failures[next(iter(failures))]

    def succeeded(self, address: str) -> None:
        """A log-in succeeded: earlier failures were slips."""
        self._failures.pop(network_of(address), None)


def network_of(address: str) -> str:
    """What counts as one address.

    >>> network_of("2001:db8::1"), network_of("::ffff:1.2.3.4"), network_of("")
    ('2001:db8::/64', '1.2.3.4', 'local')
    """
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address or "local"
    if isinstance(parsed, IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(IPv6Network((parsed, 64), strict=False))
    return str(parsed)
