"""Addresses at which a broker listens, as text that `Address.parse` reads.

    weft://host:port          plain text over TCP
    weft+tls://host:port      TLS over TCP
    weft+unix:///path         a Unix socket

The port is 9338 unless it is given (WEFT on the keys of a telephone); port 0 is any that is free. An IPv6 address
stands in brackets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Literal
from urllib.parse import quote, unquote, urlsplit

from weft.errors import OptionError

DEFAULT_PORT = 9338

Scheme = Literal["weft", "weft+tls", "weft+unix"]


@dataclass(frozen=True, slots=True)
class Address:
    """One address of a broker.

    >>> Address.parse("weft://localhost")
    Address(scheme='weft', host='localhost', port=9338, path='')
    >>> str(Address.parse("weft+tls://[::1]:7000")), str(Address.parse("weft+unix:///run/weft.sock"))
    ('weft+tls://[::1]:7000', 'weft+unix:///run/weft.sock')
    >>> Address.parse("broker.example:7000").tls
    False
    """

    scheme: Scheme = "weft"
    host: str = "localhost"
    port: int = DEFAULT_PORT
    path: str = ""

    def __post_init__(self) -> None:
        if self.scheme not in ("weft", "weft+tls", "weft+unix"):
            raise OptionError(
                f"{self.scheme}:// is not a scheme of Weft; use weft://host:port, weft+tls://host:port or "
                f"weft+unix:///path"
            )
        if self.scheme == "weft+unix" and not self.path:
            raise OptionError("the address of a Unix socket needs a path, such as weft+unix:///run/weft.sock")
        if self.scheme == "weft+unix" and len(self.path.encode()) > 100:
            raise OptionError(f"the path of a Unix socket has at most 100 bytes; choose a shorter one than {self.path}")
        if self.scheme != "weft+unix" and not self.host:
            raise OptionError(f"{self} names no host; write {self.scheme}://localhost, for example")
        if not 0 <= self.port <= 65_535:
            raise OptionError(f"{self.port} is not a port; ports go up to 65535")

    @staticmethod
    def parse(text: str) -> Address:
        """The address of a text; without a scheme it is plain TCP. Raises OptionError."""
        whole = text.strip() if "://" in text else f"weft://{text.strip()}"
        try:
            parts = urlsplit(whole)
            port = parts.port
        except ValueError as error:
            raise OptionError(f"{text!r} is not an address ({error}); write weft://host:port") from None
        if parts.query or parts.fragment or "@" in parts.netloc:
            raise OptionError(f"{text!r} has more than a host and a port; pass credentials and options separately")
        scheme: Scheme = parts.scheme  # type: ignore[assignment] # checked by __post_init__
        if parts.scheme == "weft+unix":
            if parts.netloc:
                raise OptionError(f"{text!r} names a host; write weft+unix:///path, with three slashes")
            return Address(scheme, "", 0, unquote(parts.path))
        if parts.path not in ("", "/"):
            raise OptionError(f"{text!r} has a path; write weft://host:port")
        return Address(scheme, parts.hostname or "", DEFAULT_PORT if port is None else port)

    def __str__(self) -> str:
        if self.scheme == "weft+unix":
            return f"weft+unix://{quote(self.path)}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def tls(self) -> bool:
        """Whether the wire is encrypted."""
        return self.scheme == "weft+tls"

    @property
    def unix(self) -> bool:
        """Whether it is a Unix socket."""
        return self.scheme == "weft+unix"

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.unix or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def at(self, port: int) -> Address:
        """The same address with another port."""
        return replace(self, port=port)
