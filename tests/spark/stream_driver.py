"""A driver that runs a stream until it is killed.

Its arguments are the folder of `StreamFiles` and `driver_rows`. After each micro-batch it prints a line.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spark.stream_files import StreamFiles
from weft.spark import match_stream, session


def main() -> None:
    root, driver_rows = Path(sys.argv[1]), int(sys.argv[2])
    spark = session("local[2,4]", memory="1g", options={"spark.sql.shuffle.partitions": "2"})
    files = StreamFiles(spark, root)

    def tell(metrics):
        print(f"batch {metrics.batch}", flush=True)

    options = {"order": "nr", "tell": tell, "driver_rows": driver_rows}
    match_stream(files.events(limit=1), files.commands(), files.checkpoint, files.out, **options).wait()


if __name__ == "__main__":
    main()
