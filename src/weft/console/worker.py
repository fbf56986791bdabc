"""A process for work that takes long: layouts, structures of the laboratory, pictures of spaces.

One process, one job at a time, five seconds each: a job that takes longer is killed with the process, which starts anew
for the next one. The first job of a kind has two minutes, because it may have to compile kernels. Jobs are functions of
modules, with arguments and results that can be pickled.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import signal
import sys
from collections.abc import Callable
from struct import Struct
from typing import Any, ParamSpec, TypeVar

from weft.errors import WeftError
from weft.gateway.problems import FAULT, UNAVAILABLE, ProblemError

PATIENCE = 5.0  # seconds
_STARTING = 60.0  # seconds until a new process must be ready
_FIRST = 120.0  # seconds for the first job of a kind
_SIZE = Struct("<Q")
_PROGRAM = "from weft.console.worker import serve; serve()"
P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """The process, which starts with the first job."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._lock = asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None
        self._known: set[Callable[..., Any]] = set()  # work that was done before: its kernels are compiled

    async def run(self, work: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
        """What a function returns, computed elsewhere. Raises its WeftError, or ProblemError."""
        async with self._lock:
            process = self._process
            if process is None or process.returncode is not None:
                process = self._process = await self._started()
            assert process.stdin is not None
            body = pickle.dumps((work, arguments, options))
            patience = self._patience if work in self._known else max(self._patience, _FIRST)
            try:
                async with asyncio.timeout(patience):
                    process.stdin.write(_SIZE.pack(len(body)) + body)
                    kind, value = await _answer(process)
            except TimeoutError:
                await self._kill()
                detail = f"this took longer than {patience:g} s and was stopped; ask for fewer filters"
                raise ProblemError(UNAVAILABLE, detail) from None
            except BaseException:  # the process ended, or its answer is no longer wanted
                await self._kill()
                raise
        self._known.add(work)
        if kind == "done":
            return value  # type: ignore[no-any-return] # what the function returned
        if kind == "problem":
            problem, detail, headers, fields = value
            raise ProblemError(problem, detail, headers, **fields)
        if isinstance(value, Exception):
            raise value
        raise ProblemError(FAULT, f"the computation failed: {value}")

    async def _started(self) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _PROGRAM, stdin=pipe, stdout=pipe, limit=1 << 26
        )
        try:
            async with asyncio.timeout(_STARTING):
                await _answer(process)
        except BaseException:
            self._process = process
            await self._kill()
            raise
        return process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def close(self) -> None:
        """End the process."""
        await self._kill()


async def _answer(process: asyncio.subprocess.Process) -> tuple[str, Any]:
    assert process.stdout is not None
    try:
        (size,) = _SIZE.unpack(await process.stdout.readexactly(_SIZE.size))
        found: tuple[str, Any] = pickle.loads(await process.stdout.readexactly(size))
    except asyncio.IncompleteReadError:
        raise ProblemError(UNAVAILABLE, "the process for long computations has ended; try again") from None
    return found


def serve() -> None:
    """Do jobs until standard input ends. Runs in the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asked, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # what a job prints is not an answer

    def answer(kind: str, value: Any) -> None:
        body = pickle.dumps((kind, value))
        answers.write(_SIZE.pack(len(body)) + body)
        answers.flush()

    answer("ready", None)
    while size := asked.read(_SIZE.size):
        try:
            work, arguments, options = pickle.loads(asked.read(_SIZE.unpack(size)[0]))
            answer("done", work(*arguments, **options))
        except ProblemError as error:
            answer("problem", (error.kind, error.detail, error.headers, error.fields))
        except WeftError as error:
            answer("failed", error)
        except Exception as error:
            answer("failed", f"{type(error).__name__}: {error}")
