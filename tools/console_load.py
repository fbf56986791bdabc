"""What the console costs: `python tools/console_load.py [SUBSCRIPTIONS] [ROUNDS] [pages]`; `pages` measures no events.

A broker with its gateway in processes of their own gets many subscriptions and 1,000 events per second. Printed are the
first paint of pages and how long they take until they are at rest; the delay between a key and the next frame while the
live tail runs; and the CPU time of the broker in windows with and without an open console, in turn.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from random import Random
from statistics import median
from subprocess import PIPE, Popen
from time import perf_counter
from typing import Any

from playwright.async_api import async_playwright

from weft.client.client import Client, connect

RATE, SECONDS = 1_000, 8
PAGES = (
    "/",
    "/subscriptions",
    "/sessions",
    "/filters?where=magnitude+%3E%3D+8.9",
    "/events?where=magnitude+%3E%3D+8.9",
)
OBSERVE = """() => { window.delays = []; document.addEventListener("keydown", e =>
    requestAnimationFrame(() => window.delays.push(performance.now() - e.timeStamp)), true); }"""
TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def serving() -> Iterator[tuple[int, str, str]]:
    """A broker with a gateway: its process, its address, and that of the gateway."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "weft.toml"
        settings.write_text(
            'listen = ["weft://127.0.0.1:0"]\n[gateway]\nlisten = "127.0.0.1:0"\n[limits]\nchanges = 1000\n'
        )
        command = [sys.executable, "-m", "weft", "serve", "--config", str(settings), "--data", f"{folder}/data"]
        with Popen(command, stderr=PIPE, text=True) as process:
            assert process.stderr is not None
            found: dict[str, str] = {}
            for line in process.stderr:
                for part in ("listening", "gateway"):
                    if f" {part} address=" in line:
                        found[part] = line.split("address=")[1].split()[0]
                if len(found) == 2:
                    break
            try:
                yield process.pid, found["listening"], found["gateway"]
            finally:
                process.terminate()
                process.stderr.read()


def cpu(process: int) -> float:
    """The CPU time of a process, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def subscribed(client: Client, number: int) -> None:
    """Many subscriptions."""
    rng = Random(3)
    for first in range(0, number, 500):
        some = range(first, min(first + 500, number))
        texts = [
            f"magnitude >= {rng.random() * 9:.3f} AND depth < {rng.randint(1, 700)} AND place = 'p{n}'" for n in some
        ]
        await asyncio.gather(*(client.subscribe(text)._open() for text in texts))


@asynccontextmanager
async def publishing(address: str) -> Any:
    """1,000 events per second, until the block ends."""

    async def publish() -> None:
        rng, loop = Random(5), asyncio.get_running_loop()
        async with connect(address, name="feed") as client:
            due = loop.time()
            while True:
                await client.publish_many(
                    {"magnitude": rng.random() * 9, "depth": rng.randint(1, 700), "place": f"p{rng.randint(0, 10**6)}"}
                    for _ in range(RATE // 20)
                )
                due += 1 / 20
                await asyncio.sleep(max(0, due - loop.time()))

    task = asyncio.create_task(publish())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def main() -> None:
    """Measure and print."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with serving() as (process, address, gateway):
        async with connect(address, name="many") as client, async_playwright() as play:
            began = perf_counter()
            await subscribed(client, number)
            print(
                f"{number:,} subscriptions in {perf_counter() - began:.0f} s; load {os.getloadavg()[0]:.1f}", flush=True
            )
            browser = await play.chromium.launch(executable_path=shutil.which("chromium"))
            page = await browser.new_page()
            await page.goto(f"{gateway}/ui")  # the browser's own start is not measured
            for path in PAGES:
                paints, rests = [], []
                for _ in range(rounds):
                    began = perf_counter()
                    await page.goto(f"{gateway}/ui{path}")
                    await page.wait_for_selector("body[data-ready]")
                    rests.append(1e3 * (perf_counter() - began))
                    entries = "performance.getEntriesByType('paint').map(each => each.startTime)"
                    paints.append(max(await page.evaluate(entries)))
                print(f"{path:<44} first paint {median(paints):6.0f} ms, at rest {median(rests):6.0f} ms", flush=True)
            if sys.argv[3:] == ["pages"]:
                await browser.close()
                return
            async with publishing(address):
                await page.goto(f"{gateway}/ui/events")
                await page.wait_for_selector("body[data-ready]")
                await page.wait_for_timeout(3_000)
                await page.evaluate(OBSERVE)
                await page.get_by_label("Filter", exact=True).click()
                for letter in "magnitude >= 8.5 AND depth < 300 AND depth > 2":
                    await page.keyboard.press(letter)
                    await page.wait_for_timeout(60)
                delays = sorted(await page.evaluate("window.delays"))
                shown = (await page.inner_text(".progress >> nth=1")).replace("\n", " ")
                print(f"key to frame: median {median(delays):.0f} ms, longest {delays[-1]:.0f} ms; tail says: {shown}")
                used: dict[str, list[float]] = {"closed": [], "overview": [], "tail": []}
                for _ in range(rounds):
                    for how, found in used.items():
                        where = {"closed": "about:blank", "overview": f"{gateway}/ui", "tail": f"{gateway}/ui/events"}[
                            how
                        ]
                        await page.goto(where)
                        await asyncio.sleep(2)
                        before, end, began = cpu(process), (await client.status()).end, perf_counter()
                        await asyncio.sleep(SECONDS)
                        used_now, events = cpu(process) - before, (await client.status()).end - end
                        assert abs(events / (perf_counter() - began) - RATE) < RATE / 4, f"{events} events were stored"
                        found.append(1e6 * used_now / events)
                for how, found in used.items():
                    ratio = median(a / b for a, b in zip(found, used["closed"], strict=True))
                    some = " ".join(f"{each:.1f}" for each in found)
                    print(f"broker CPU, {how:<9} {some} us of CPU per event; {ratio:.3f} of closed", flush=True)
            await browser.close()
    print(f"load at the end {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    asyncio.run(main())
