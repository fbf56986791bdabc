"""Free ports for servers that must be told theirs."""

from __future__ import annotations

import os
import socket


def free_ports(number: int = 1) -> int:
    """The first of this many free ports in a row.

    They lie below the range from which the system assigns ports by itself, so that nothing else is given one of them
    before the server listens; different processes begin at different ports.
    """
    for first in range(10_000 + os.getpid() * 37 % 20_000, 32_000, number):
        taken = []
        try:
            taken.extend(socket.create_server(("127.0.0.1", port)) for port in range(first, first + number))
            return first
        except OSError:
            continue
        finally:
            for each in taken:
                each.close()
    raise AssertionError("no free ports")
