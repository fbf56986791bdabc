"""A driver that runs a stream until it is killed, or with `once` until it has read everything.

Its arguments are the folder of `StreamFiles`, `once` or `on`, and `driver_rows`. After each micro-batch it prints a
line.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spark.stream_files import StreamFiles
from weft.spark import match_stream, session


def main() -> None:
    root, mode, driver_rows = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    spark = session("local[2,4]", memory="1g", options={"spark.sql.shuffle.partitions": "2"})
    files = StreamFiles(spark, root)

    def tell(metrics):
        print(f"batch {metrics.batch}", flush=True)

    options = {"order": "nr", "once": mode == "once", "tell": tell, "driver_rows": driver_rows}
    stream = match_stream(files.events(limit=1), files.commands(), files.checkpoint, files.out, **options)
    print("started", flush=True)
    stream.wait()
    print("ended", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
