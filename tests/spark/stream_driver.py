"""A driver that runs a stream until it is killed: its arguments are the folder of `StreamFiles`, and options as JSON.

It matches events and prints a line after each micro-batch. With the address of a broker it publishes the events of
each of some folders there, each with a query of its own, and prints which queries ended, and why.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from spark.stream_files import StreamFiles
from weft.spark import Watermark, match_stream, register, session
from weft.spark.stream import deduplicated

WATERMARK = Watermark("1 minute", time="t")


def match(spark, root, *, driver_rows, watermark):
    files = StreamFiles(spark, root)
    options = {"order": "nr", "driver_rows": driver_rows, "watermark": WATERMARK if watermark else None}
    options["tell"] = lambda metrics: print(f"batch {metrics.batch}", flush=True)
    match_stream(files.events(limit=1), files.commands(), files.checkpoint, files.out, **options).wait()


def published(spark, root, url, watermark, staging=None):
    """The query that publishes the events of a folder, as a writer."""
    events = deduplicated(StreamFiles(spark, root).events(limit=1), WATERMARK if watermark else None)
    writer = events.select("n", "s").repartition(2).writeStream.format("weft").option("url", url)
    writer = writer.option("patience", 300)  # a broker takes a while to start on a busy machine
    writer = writer.option("staging", staging) if staging else writer
    return writer.option("checkpointLocation", str(root / "checkpoint"))


def publish(spark, root, *, url, watermark, staging, folders):
    register(spark)
    running = {name: published(spark, root / name, url, watermark, staging).start() for name in folders}
    while running:
        for name, query in [*running.items()]:
            if not query.isActive:
                del running[name]
                print(f"ended {name}: {' '.join(str(query.exception()).split())}", flush=True)
        time.sleep(0.05)


def main() -> None:
    root, options = Path(sys.argv[1]), json.loads(sys.argv[2])
    spark = session("local[2,4]", memory="1g", options={"spark.sql.shuffle.partitions": "2"})
    (publish if "url" in options else match)(spark, root, **options)


if __name__ == "__main__":
    main()
