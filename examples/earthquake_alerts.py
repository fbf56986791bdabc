"""Earthquake alerts: a week of real events against 4,000 people who each care about a circle on the map.

Run it with `python examples/earthquake_alerts.py`; what it prints is in earthquake_alerts.out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from weft.index import TreeIndex
from weftlab.demo import earthquakes

TOWNS = {  # latitude, longitude
    "Anchorage": (61.2, -149.9),
    "Fairbanks": (64.8, -147.7),
    "San Jose": (37.3, -121.9),
    "Los Angeles": (34.1, -118.2),
    "Reno": (39.5, -119.8),
    "Salt Lake City": (40.8, -111.9),
    "Oklahoma City": (35.5, -97.5),
    "San Juan": (18.5, -66.1),
    "Hilo": (19.7, -155.1),
    "Mexico City": (19.4, -99.1),
    "Santiago": (-33.4, -70.7),
    "Hualien": (24.0, 121.6),
    "Tokyo": (35.7, 139.7),
    "Manila": (14.6, 121.0),
    "Port Moresby": (-9.4, 147.2),
    "Suva": (-18.1, 178.4),  # circles around it cross the date line
}
PEOPLE_PER_TOWN = 250


@dataclass(frozen=True, slots=True)
class Alert:
    """Somebody's wish: to hear of what is strong enough and near enough."""

    who: str
    latitude: float
    longitude: float
    km: float
    magnitude: float

    @property
    def text(self) -> str:
        """The filter: the box around the circle, and a least magnitude."""
        up = self.km / 111.2
        aside = up / math.cos(math.radians(self.latitude))
        south, north = self.latitude - up, self.latitude + up
        west, east = self.longitude - aside, self.longitude + aside
        if west < -180:
            around = f"(longitude >= {west + 360:.2f} OR longitude <= {east:.2f})"
        elif east > 180:
            around = f"(longitude >= {west:.2f} OR longitude <= {east - 360:.2f})"
        else:
            around = f"longitude BETWEEN {west:.2f} AND {east:.2f}"
        return f"latitude BETWEEN {south:.2f} AND {north:.2f} AND {around} AND magnitude >= {self.magnitude}"


def alerts(rng: np.random.Generator) -> list[Alert]:
    """People live near their town; most want to hear only of what is near or strong."""
    made = []
    for town, (latitude, longitude) in TOWNS.items():
        for number in range(PEOPLE_PER_TOWN):
            north, east = rng.normal(0, 0.7, 2)
            km = float(rng.choice([50, 100, 200, 400, 800]))
            magnitude = float(rng.choice([1.0, 2.0, 2.5, 3.0, 4.0, 4.5, 5.0]))
            made.append(Alert(f"{town} {number:03}", latitude + north, longitude + east, km, magnitude))
    return made


def main() -> None:
    people = alerts(np.random.default_rng(2018))
    index = TreeIndex()
    index.add_texts(range(len(people)), [alert.text for alert in people])

    events = earthquakes.table()
    found = index.match_batch(events)
    print(f"{events.num_rows:,} events, {len(index):,} people, {len(found.ids):,} alerts")
    print(f"{int((found.counts == 0).sum()):,} events interest nobody")

    print("\nMost alerted")
    told = np.bincount(found.ids, minlength=len(people))
    for sub in np.argsort(-told, kind="stable")[:5].tolist():
        alert = people[sub]
        print(f"  {alert.who:18} {told[sub]:4}  magnitude {alert.magnitude} within {alert.km:.0f} km")

    print("\nAlerts by town")
    by_town = told.reshape(len(TOWNS), PEOPLE_PER_TOWN)
    for town, counts in zip(TOWNS, by_town, strict=True):
        print(f"  {town:18} {int(counts.sum()):6,}  for {int((counts > 0).sum()):3} of {PEOPLE_PER_TOWN} people")

    most = int(np.argmax(found.counts))
    event = earthquakes.events()[most]
    print(f"\nThe event with most alerts: magnitude {event['magnitude']}, {event['place']}")
    print(f"  {found.counts[most]:,} people, the first of them {people[found[most].min()].who}")

    # Somebody near enough, for whom it was too weak: `explain` says so.
    for sub in range(len(people)):
        why = index.explain(event, sub)
        failed = [part for part in why.parts if not part.truth]
        if len(failed) == 1 and "magnitude" in failed[0].values:
            break
    print(f"\nWhy {people[sub].who} was not told of it")
    for part in why.parts:
        values = ", ".join(f"{name} is {value}" for name, value in part.values.items())
        print(f"  {'yes' if part.truth else 'NO':3}  {part.filter}  ({values})")


if __name__ == "__main__":
    main()
