"""TLS for brokers and their clients: 1.2 or newer, and certificates are verified whenever they are required."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from weft.errors import OptionError


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """`[tls]`: who this broker is, and whom it trusts."""

    certificate: Path | None = None  # PEM, with the intermediate certificates
    key: Path | None = None  # PEM; None if the certificate's file has it
    authority: Path | None = None  # PEM; with it, clients and neighbours need certificates that it has issued
    required: bool = True  # false: who has no certificate may come without one, and send a token

    def __post_init__(self) -> None:
        if self.certificate is None and (self.key is not None or self.authority is not None):
            raise OptionError("tls.certificate is missing: name the file with this broker's certificate")


def server_context(config: TlsConfig) -> ssl.SSLContext | None:
    """How a broker speaks TLS; None without a certificate. Raises OptionError for files that are not usable."""
    if config.certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_certificate(context, config.certificate, config.key)
    if config.authority is not None:
        _load_authority(context, config.authority)
        context.verify_mode = ssl.CERT_REQUIRED if config.required else ssl.CERT_OPTIONAL
    return context


def client_context(
    authority: Path | None = None, certificate: Path | None = None, key: Path | None = None
) -> ssl.SSLContext:
    """How a client, or a broker that dials, speaks TLS: `authority` instead of the system's authorities, if given."""
    if authority is None:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _load_authority(context, authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if certificate is not None:
        _load_certificate(context, certificate, key)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: Path, key: Path | None) -> None:
    for file in (certificate, key):
        if file is not None and not file.is_file():
            raise OptionError(f"{file} does not exist or is not a file; a certificate and its key are PEM files")
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError) as error:
        names = str(certificate) if key is None else f"{certificate} and {key}"
        raise OptionError(f"{names} are not a certificate and its key in PEM: {error.strerror or error}") from error


def _load_authority(context: ssl.SSLContext, authority: Path) -> None:
    try:
        context.load_verify_locations(authority)
    except (ssl.SSLError, OSError) as error:
        raise OptionError(f"{authority} has no certificates in PEM: {error.strerror or error}") from error


def _no_password() -> str:
    raise OptionError("the key of the certificate is encrypted; a broker needs one without a password")
