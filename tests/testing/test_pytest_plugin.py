"""The pytest plugin: found by its entry point, cheap where nobody uses it, a real broker where somebody does."""

import subprocess
import sys
from importlib.metadata import entry_points

TESTS = """
import sys

def test_nothing_is_imported_for_others():
    assert "weft.testing.local_broker" not in sys.modules
    assert "asyncio" not in sys.modules or "weft.client.client" not in sys.modules

def test_the_alarm_rings(weft_broker, weft_client):
    alarms = weft_client.subscribe("type = 'alarm'")
    with weft_broker.connect_sync() as other:
        other.publish({"type": "alarm", "room": "attic"})
    assert alarms.receive(timeout=60)["room"] == "attic"
"""


def test_fixtures_give_a_broker_and_a_client(tmp_path):
    assert [each.value for each in entry_points(group="pytest11", name="weft")] == ["weft.testing.pytest_plugin"]
    (tmp_path / "test_alarm.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", "/dev/null", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
