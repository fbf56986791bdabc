"""The address of a console, for a browser: with a token, one that logs in once."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from weft.errors import BrokerError, OptionError

_PATIENCE = 10  # seconds


def console_address(gateway: str, token: str | None = None, authority: Path | None = None) -> str:
    """The address of the console of a gateway. Raises OptionError or BrokerError.

    With a token, the address has a code, which logs a browser in once within a minute.
    """
    base = gateway.rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise OptionError(f"{gateway!r} is not the address of a gateway; write http://host:port or https://host:port")
    context = ssl.create_default_context(cafile=None if authority is None else str(authority))
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))

    def ask(path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        data = None if body is None else json.dumps(body).encode()
        request = Request(base + path, data, {"Content-Type": "application/json"})
        with opener.open(request, timeout=_PATIENCE) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    try:
        if token:
            code = ask("/api/v1/session", {"token": token, "wanted": "code"})["code"]
            return f"{base}/ui#code={code}"
        ask("/health")
    except HTTPError as error:
        with error:
            if error.code == 404:
                raise BrokerError(f"{base} is a gateway without a console; set gateway.console = true") from None
            try:
                detail = json.load(error).get("detail", "")
            except ValueError:
                detail = f"status {error.code}"
        raise BrokerError(f"{base} refused: {detail}") from None
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        hint = "start one with `weft serve --gateway 9380`, or pass --gateway"
        raise BrokerError(f"no gateway answers at {base} ({reason}); {hint}") from None
    return f"{base}/ui"
