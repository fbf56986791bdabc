"""What a program prints with compiled kernels, and with the kernels as plain Python."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stdout


def compiled_and_plain(program: str) -> tuple[str, str]:
    """What it prints here, and in a process without the compiler."""
    told = io.StringIO()
    with redirect_stdout(told):
        exec(compile(program, "program", "exec"), {})
    env = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "error", "-c", program]
    plain = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert plain.returncode == 0, plain.stderr
    return told.getvalue(), plain.stdout
