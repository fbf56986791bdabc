"""Addresses in a network: a predicate that every reader of filters knows. `covers` and `overlaps` are exact.

    cidr(source_ip, '10.0.0.0/8')

A value that is not an IP address is in no network, nor is one of more than 128 characters. IPv4 and IPv6 addresses are
never in each other's networks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from weft.model.value import Type, Value

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

    from weft.language.predicate import Arguments

_LONGEST = 128  # characters of an address; an IPv6 address with its scope has fewer


class Cidr:
    """`cidr(ip, '10.0.0.0/8')`: the value is an IP address in this network.

    >>> from weft import matches, parse
    >>> matches(parse("cidr(ip, '10.0.0.0/8')"), {"ip": "10.1.2.3"})
    True
    """

    name = "cidr"
    type = Type.STRING

    def check(self, arguments: Arguments) -> None:
        """There is one argument, the network."""
        if len(arguments) != 1 or not isinstance(arguments[0], str):
            raise ValueError("cidr takes an attribute and one network, as in cidr(ip, '10.0.0.0/8')")
        if len(arguments[0]) > _LONGEST:
            raise ValueError(f"a network must be a string of at most {_LONGEST} characters, such as '10.0.0.0/8'")
        _network(arguments[0])

    def matches(self, value: Value, arguments: Arguments) -> bool:
        """Whether the value is an address in the network."""
        text = str(value)
        address = _address(text) if len(text) <= _LONGEST else None
        return address is not None and address in _network(str(arguments[0]))

    def covers(self, wide: Arguments, narrow: Arguments) -> bool:
        """Exact: the narrow network is part of the wide one."""
        one, other = _network(str(wide[0])), _network(str(narrow[0]))
        return one.version == other.version and other.subnet_of(one)  # type: ignore[arg-type]

    def overlaps(self, one: Arguments, other: Arguments) -> bool:
        """Exact: one network is part of the other."""
        return self.covers(one, other) or self.covers(other, one)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cidr)

    def __hash__(self) -> int:
        return hash(Cidr)


@lru_cache(maxsize=256)
def _address(text: str) -> IPv4Address | IPv6Address | None:
    """The address that a text is, or None. Remembered: a filter may test an address with many networks."""
    from ipaddress import ip_address

    try:
        return ip_address(text)
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def _network(text: str) -> IPv4Network | IPv6Network:
    from ipaddress import ip_network

    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is not a network; write it as '10.0.0.0/8' or '2001:db8::/32'") from None


def is_network(text: str) -> bool:
    """Whether a text is a network that begins with its address."""
    from ipaddress import ip_network

    try:
        ip_network(text)
    except ValueError:
        return False
    return True


CIDR = Cidr()
