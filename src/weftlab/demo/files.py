"""Files to try the commands on: a week of real seismic events, and rules that people might have about them."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np

from weft.errors import OptionError
from weftlab.demo import earthquakes
from weftlab.demo.feeds import feeds

_RULES, _ALERTS, _SEED = 2_000, 40, 7


def write_files(folder: Path, overwrite: bool = False) -> list[Path]:
    """Write events and rules into a folder, which is created. Returns the files. Raises OptionError if one is there.

    | file | what is in it |
    |---|---|
    | events.parquet, events.jsonl | the earthquakes, as a table and as lines |
    | rules.csv, rules.parquet | 2,000 rules with the columns `id` and `filter` |
    | alerts.txt | 40 rules that cover each other here and there, one per line |
    | schema.toml | the types and bounds of the events |
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ("events.parquet", "events.jsonl", "rules.csv", "rules.parquet", "alerts.txt", "schema.toml")
    paths = [folder / name for name in names]
    there = [path for path in paths if path.exists()]
    if there and not overwrite:
        raise OptionError(f"{there[0]} already exists; pass --overwrite, or name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    table, rng = earthquakes.table(), np.random.default_rng(_SEED)
    rules = feeds()[0].filters(_RULES, rng)
    ids = [f"rule-{number}" for number in range(1, _RULES + 1)]
    pq.write_table(table, paths[0])
    with paths[1].open("w", encoding="utf-8") as lines:
        for row in table.to_pylist():
            kept = {name: value for name, value in row.items() if value is not None}
            lines.write(json.dumps(kept, default=lambda moment: moment.isoformat()) + "\n")
    with paths[2].open("w", encoding="utf-8", newline="") as sheet:
        csv.writer(sheet).writerows([("id", "filter"), *zip(ids, rules, strict=True)])
    pq.write_table(pa.table({"id": ids, "filter": rules}), paths[3])
    paths[4].write_text("\n".join(_alerts(rng)) + "\n", encoding="utf-8")
    paths[5].write_text(earthquakes.schema_text(), encoding="utf-8")
    return paths


def _alerts(rng: np.random.Generator) -> list[str]:
    """Rules by magnitude, depth and network, coarse enough that some cover others."""
    found: dict[str, None] = {}
    while len(found) < _ALERTS:
        strong, deep = f"magnitude >= {rng.integers(2, 7)}", f"depth < {10 * rng.integers(1, 8)}"
        where = f"net = '{rng.choice(['us', 'ak', 'ci', 'nc', 'hv'])}'"
        chosen = [each for each in (strong, deep, where) if rng.random() < 0.6]
        if chosen:
            found[" AND ".join(chosen)] = None
    return list(found)
