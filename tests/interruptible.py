"""`weft` as a program that Ctrl-C ends, also if whoever runs the tests ignores it, as shells do in the background."""

from __future__ import annotations

import sys

_PROGRAM = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from weft.cli import main; main()"
INTERRUPTIBLE = [sys.executable, "-c", _PROGRAM]
