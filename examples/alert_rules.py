"""Alert rules under string ids: from a table, one by one and in batches, and why one did not fire.

    python examples/alert_rules.py

The rules watch machines; the readings are a table. `Index` says which rules each reading fires.
"""

from __future__ import annotations

import pyarrow as pa

from weft import Index

RULES = pa.table(
    {
        "id": ["hot", "cold-room", "disk-full", "no-data"],
        "filter": [
            "temperature > 80",
            "room LIKE 'cold-%' AND temperature > 4",
            "disk.used >= 0.95",
            "temperature IS NULL",
        ],
    }
)
READINGS = pa.table(
    {
        "room": ["hall", "cold-1", "hall", "attic"],
        "temperature": [85.5, 6.0, 21.0, None],
        "disk": [{"used": 0.5}, {"used": 0.97}, {"used": 0.2}, {"used": 0.3}],
    }
)


def main() -> None:
    index = Index(RULES)
    print(index)

    found = index.match_batch(READINGS)
    for reading, rules in enumerate(found.lists()):
        print(f"reading {reading}: {', '.join(sorted(rules)) or 'no rule'}")
    fired = found.to_pandas()["subscription"].value_counts()
    print("fired:", {rule: int(count) for rule, count in sorted(fired.items())})

    index.replace("hot", "temperature > 90")
    index.add("hall-warm", "room = 'hall' AND temperature > 20")
    print("after a change:", sorted(index.match({"room": "hall", "temperature": 85.5})))

    why = index.explain({"room": "hall", "temperature": 85.5}, "cold-room")
    print("cold-room:", [f"{part.filter} is {part.truth}" for part in why.parts])

    broken = index.match_batch([{"temperature": 95}, {"temperature": b"95"}])
    print(broken)
    for error in broken.errors.values():
        print(error)


if __name__ == "__main__":
    main()
