"""Files that a stream reads, and what it must have written: an oracle that evaluates every filter for every event."""

from __future__ import annotations

import json
import os
from pathlib import Path

from weft.language.meaning import matches
from weft.spark.stream_tables import stored_metrics, stream_results

EVENT = "n bigint, x bigint, s string, source string, id string, t timestamp, _corrupt_record string"

BEGIN = 1_700_000_000


def shown(rows):
    return sorted((row.n, row.subscription) for row in rows)


class StreamFiles:
    """Two folders of JSON lines: events, numbered by `n`, and commands. `flush` makes lines a file, at once."""

    def __init__(self, spark, root: Path) -> None:
        self.spark, self.root = spark, root
        self.checkpoint, self.out = root / "checkpoint", root / "out"
        self.lines: dict[str, list[str]] = {"events": [], "commands": []}
        self.sent: list[dict] = []
        self.given: list[tuple] = []  # commands, in order
        self.numbered = True
        for side in self.lines:
            (root / side).mkdir(exist_ok=True)

    def line(self, side, text):
        self.lines[side].append(text)
        if side == "commands":
            self.given.append((None, None, None))
        return self

    def event(self, count=1, **attributes):
        for _ in range(count):
            n = len(self.sent)
            event = {"n": n, "x": (7 * n) % 10, "s": f"s{n % 3}", **attributes}
            self.sent.append(event)
            self.line("events", json.dumps(event))
        return self

    def repeat(self, event):
        """An event that is a duplicate, or late: a watermark leaves it out."""
        return self.line("events", json.dumps(event))

    def command(self, action, id, filter=None):
        self.numbered = isinstance(id, int)
        self.lines["commands"].append(json.dumps({"action": action, "id": id, "filter": filter, "nr": len(self.given)}))
        self.given.append((action, id, filter))
        return self

    def flush(self):
        for side, lines in self.lines.items():
            if lines:
                draft = self.root / "draft"
                draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
                number = len(list((self.root / side).iterdir()))
                os.utime(draft, (BEGIN + number, BEGIN + number))  # Spark takes files by their times
                draft.rename(self.root / side / f"{number:05}.json")
                lines.clear()

    def events(self, limit=1000):
        reader = self.spark.readStream.schema(EVENT).option("maxFilesPerTrigger", limit)
        return reader.json(str(self.root / "events"))

    def commands(self, kind=None):
        kind = kind or ("bigint" if self.numbered else "string")
        schema = f"action string, id {kind}, filter string, nr bigint, _corrupt_record string"
        return self.spark.readStream.schema(schema).json(str(self.root / "commands"))

    def rows(self):
        return shown(stream_results(self.spark, self.out).collect())

    def held(self, version, initial=None):
        """The subscriptions after so many commands."""
        held = dict(initial or {})
        for action, key, text in self.given[:version]:
            if action == "unsubscribe":
                held.pop(key, None)
            elif action == "replace" or (action == "subscribe" and key not in held):
                try:
                    matches(text, {})
                except ValueError:
                    continue
                held[key] = text
        return held

    def expected(self, held, events):
        pairs = ((event["n"], key) for event in events for key, text in held.items() if matches(text, event))
        return sorted(pairs)

    def check(self, initial=None):
        """Raise AssertionError unless the micro-batches hold all events once, each matched at its version."""
        results = stream_results(self.spark, self.out).collect()
        first = 0
        for metrics in stored_metrics(self.checkpoint):
            events = self.sent[first : first + metrics.events]
            first += metrics.events
            found = shown(row for row in results if row.batch == metrics.batch)
            assert found == self.expected(self.held(metrics.version, initial), events)
            assert metrics.matches == len(found)
        assert first == len(self.sent)
