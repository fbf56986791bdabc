"""One WebSocket per tab, which carries the newest state of each topic that the tab shows.

A tab sends `{"topics": ["overlay", "tail:magnitude > 5"]}` whenever what it shows has changed. It receives
`{"topic", "n", "data"}`, at most ten frames a second; of a topic that changes faster, only the newest state. A
topic that cannot be shown is answered once, with `{"topic", "n", "problem"}`. Tabs of the same principal
share their topics.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from weft.console.page import ConsoleServices, TopicSource, TopicWatch
from weft.gateway.clients import PrincipalClient
from weft.gateway.problems import UNKNOWN, ProblemError, problem_of

MOST_TOPICS = 20  # of a tab
INTERVAL = 0.1  # seconds between two frames of a tab
_AGAIN = 2.0  # seconds after which a topic whose source failed begins again
_encode = msgspec.json.Encoder().encode


class _TabRequest(msgspec.Struct):
    topics: list[str]


class LiveTopic:
    """A topic that somebody looks at, and its newest state."""

    def __init__(self, source: TopicSource, watch: TopicWatch) -> None:
        self.number = 0
        self.frame: dict[str, Any] = {}
        self.tabs: set[asyncio.Event] = set()
        self._task = asyncio.create_task(self._follow(source, watch), name="weft-topic")

    async def _follow(self, source: TopicSource, watch: TopicWatch) -> None:
        while True:
            try:
                async for data in source(watch):
                    self._show({"data": data})
                return
            except Exception as error:
                problem = problem_of(error)
                self._show({"problem": {"detail": problem.detail, "status": problem.kind.status, **problem.fields}})
                if problem.kind.status < 500:
                    return
            await asyncio.sleep(_AGAIN)

    def _show(self, frame: dict[str, Any]) -> None:
        self.number += 1
        self.frame = frame
        for tab in self.tabs:
            tab.set()

    def end(self) -> None:
        """Nobody looks at it any more."""
        self._task.cancel()


class LiveHub:
    """The topics of all tabs."""

    def __init__(self, sources: Mapping[str, TopicSource]) -> None:
        self._sources = sources
        self._topics: dict[tuple[PrincipalClient, str], LiveTopic] = {}
        self.services: ConsoleServices | None = None

    def watch(self, client: PrincipalClient, topic: str, tab: asyncio.Event) -> LiveTopic:
        """The topic, with one more tab. Raises ProblemError for an unknown one."""
        known = self._topics.get((client, topic))
        if known is None:
            name, _, argument = topic.partition(":")
            if name not in self._sources:
                raise ProblemError(UNKNOWN, f"there is no topic {name[:60]!r}")
            assert self.services is not None
            known = LiveTopic(self._sources[name], TopicWatch(client, argument, self.services))
            self._topics[client, topic] = known
        known.tabs.add(tab)
        return known

    def leave(self, client: PrincipalClient, topic: str, tab: asyncio.Event) -> None:
        """A tab no longer shows a topic."""
        known = self._topics.get((client, topic))
        if known is not None:
            known.tabs.discard(tab)
            if not known.tabs:
                known.end()
                del self._topics[client, topic]

    async def serve(
        self,
        client: PrincipalClient,
        receive: Callable[[], Awaitable[str | None]],
        send: Callable[[str], Awaitable[None]],
    ) -> None:
        """Serve a tab until it closes its connection: `receive` returns a message, or None at the end."""
        changed = asyncio.Event()
        shown: dict[str, tuple[LiveTopic, int]] = {}  # what the tab looks at, and the state that it has
        wrong: list[bytes] = []

        async def read() -> None:
            while (text := await receive()) is not None:
                try:
                    wanted = dict.fromkeys(msgspec.json.decode(text, type=_TabRequest).topics[:MOST_TOPICS])
                except ValueError:
                    return
                for topic in [each for each in shown if each not in wanted]:
                    del shown[topic]
                    self.leave(client, topic, changed)
                for topic in wanted:
                    if topic not in shown:
                        try:
                            shown[topic] = self.watch(client, topic, changed), 0
                        except ProblemError as error:
                            wrong.append(_encode({"topic": topic, "n": 0, "problem": {"detail": error.detail}}))
                changed.set()

        async def write() -> None:
            while True:
                await changed.wait()
                changed.clear()
                frames = [*wrong]
                wrong.clear()
                for name, (topic, number) in list(shown.items()):
                    if topic.number > number:
                        shown[name] = topic, topic.number
                        frames.append(_encode({"topic": name, "n": topic.number, **topic.frame}))
                for frame in frames:
                    await send(frame.decode())
                await asyncio.sleep(INTERVAL)

        tasks = [asyncio.create_task(read(), name="weft-tab"), asyncio.create_task(write(), name="weft-tab")]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for topic in shown:
                self.leave(client, topic, changed)

    def close(self) -> None:
        """End all topics."""
        for topic in self._topics.values():
            topic.end()
        self._topics.clear()
