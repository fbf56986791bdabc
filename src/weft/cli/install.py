"""Commands about the installation itself: what is installed, and kernels compiled ahead."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

from weft import __version__
from weft.cli.shell import AsJson, emit, is_quiet, say

_PARTS = {  # what needs which packages
    "brokers over HTTP (weft[broker])": ("starlette", "uvicorn", "prometheus-client", "pyjwt"),
    "Spark (weft[spark])": ("pyspark",),
}


def version(as_json: AsJson = False) -> None:
    """Show the versions of Weft, of Python and of what it uses, and which parts are installed.

    \b
    Example:
      $ weft version
    """
    found = {name: _version(name) for name in ("numpy", "pyarrow", "numba", "msgspec", "pyspark", "starlette")}
    parts = {part: all(_version(name) for name in names) for part, names in _PARTS.items()}
    if as_json:
        emit({"weft": __version__, "python": platform.python_version(), "packages": found, "parts": parts})
        return
    say(f"weft {__version__}, Python {platform.python_version()} on {platform.platform()}")
    say(", ".join(f"{name} {number}" for name, number in found.items() if number))
    for part, installed in parts.items():
        say(f"{part}: {'installed' if installed else 'not installed'}")


def _version(name: str) -> str | None:
    try:
        return version_of(name)
    except PackageNotFoundError:
        return None


def warm() -> None:
    """Compile the kernels of Weft for this machine, so that no later run has to.

    They are compiled once: about a minute of processor time. Run it after an installation, or in a container image.

    \b
    Example:
      $ weft warm
    """
    from weft.warm import main

    sys.exit(main(quiet=is_quiet()))
