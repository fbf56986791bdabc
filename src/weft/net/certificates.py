"""Client certificates say who a client is. Law: a certificate that an authority of ours has issued names exactly one
principal, or none.
"""

from __future__ import annotations

from collections.abc import Mapping
from ssl import cert_time_to_seconds
from typing import Any, Literal

from weft.errors import AccessError
from weft.log.base import NEVER

NameKind = Literal["cn", "dns", "uri", "email"]

_ALTERNATIVES = {"dns": "DNS", "uri": "URI", "email": "email"}
_MOST = 256  # characters of a principal


def end_of(certificate: Mapping[str, Any]) -> int:
    """Until when a certificate is valid, in UTC microseconds."""
    return int(cert_time_to_seconds(certificate["notAfter"])) * 1_000_000 if "notAfter" in certificate else NEVER


def principal_of(certificate: Mapping[str, Any] | None, kind: NameKind) -> str:
    """The principal of a verified certificate, as `ssl.SSLSocket.getpeercert` has it. Raises AccessError.

    >>> principal_of({"subject": ((("commonName", "ann"),),)}, "cn")
    'ann'
    >>> principal_of({"subjectAltName": (("DNS", "a.example"), ("URI", "urn:ann"))}, "uri")
    'urn:ann'
    """
    if not certificate:
        raise AccessError("the client has sent no certificate")
    if kind == "cn":
        parts = [pair for part in certificate.get("subject", ()) for pair in part]
        names = [value for key, value in parts if key == "commonName"]
    else:
        names = [value for key, value in certificate.get("subjectAltName", ()) if key == _ALTERNATIVES[kind]]
    if len(names) != 1:
        raise AccessError(f"the certificate has {len(names)} names of the kind {kind}; it must have one")
    (name,) = names
    if not 0 < len(name) <= _MOST or not name.isprintable() or "*" in name:
        raise AccessError(f"the certificate's name is not one of up to {_MOST} printable characters without *")
    return str(name)
