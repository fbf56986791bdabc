"""The process for long computations: it ends what takes too long, except for the first job of a kind."""

from __future__ import annotations

import asyncio
import time

import pytest

from weft.console.worker import Worker
from weft.errors import OptionError
from weft.gateway.problems import ProblemError


def refuse() -> None:
    raise OptionError("no")


def test_a_job_that_takes_too_long_is_ended_and_the_next_one_is_done():
    async def main() -> None:
        worker = Worker(patience=0.3)
        try:
            await worker.run(time.sleep, 1.0)  # the first of its kind may have to compile
            with pytest.raises(ProblemError, match="took longer than"):
                await worker.run(time.sleep, 60.0)
            assert await worker.run(sum, [1, 2]) == 3
            with pytest.raises(ProblemError, match="took longer"):
                await worker.run(time.sleep, 60.0)
            with pytest.raises(OptionError, match="no"):
                await worker.run(refuse)
        finally:
            await worker.close()

    asyncio.run(main())
