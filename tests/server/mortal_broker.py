"""A broker program that kills itself in a given state of a move, as if somebody had pulled the plug just then.

It is `weft serve` in every other respect. A file named `arm` in the directory that MORTAL names has the state, and is
removed; `killed` then has it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weft.broker.moves.arrivals import Arrivals
from weft.broker.moves.departures import Departures
from weft.broker.moves.moves import Moves

STATES = {
    "asking": (Moves, "_request"),
    "arriving": (Arrivals, "installed"),
    "filling": (Arrivals, "filling"),
    "left": (Departures, "end"),
}


def mortal(place: Path, state: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """A method before which the process dies, if it is told to."""

    def dying(self: Any, *args: Any) -> Any:
        arm = place / "arm"
        if arm.exists() and arm.read_text() == state:
            arm.unlink()
            (place / "killed").write_text(state)
            os.kill(os.getpid(), signal.SIGKILL)
        return method(self, *args)

    return dying


def main() -> None:
    place = Path(os.environ["MORTAL"])
    for state, (owner, name) in STATES.items():
        setattr(owner, name, mortal(place, state, getattr(owner, name)))
    sys.argv = ["weft", *sys.argv[sys.argv.index("serve") :]]
    from weft.cli.app import main as weft

    weft()


if __name__ == "__main__":
    main()
