"""How many files this process may open: each connection is one. Law: what the system does not allow is said."""

from __future__ import annotations

SPARE = 128  # files besides connections: the log, listeners, links, libraries


def room_for(connections: int) -> tuple[int, str]:
    """Raise the limit for so many connections. Returns how many there may be, and a sentence if these are fewer."""
    try:
        import resource
    except ImportError:  # Windows
        return connections, ""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections, ""
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # macOS refuses more than kern.maxfilesperproc, whatever `hard` says
        most = soft
    if most >= wanted:
        return connections, ""
    fewer = max(1, most - SPARE)
    return fewer, (
        f"this process may open {most:,} files, enough for {fewer:,} connections; for {connections:,} raise the limit "
        f"to {wanted:,} (ulimit -Hn, or LimitNOFILE= in a systemd unit), or lower connections.most"
    )
