"""TLS for brokers and their clients. Laws: TLS 1.2 or newer; a certificate is verified whenever one is asked for."""

from __future__ import annotations

import ssl
from pathlib import Path

from weft.errors import OptionError
from weft.net.config import TlsConfig


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
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if authority is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        _load_authority(context, authority)
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
