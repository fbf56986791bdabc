"""weft pub, weft sub and weft dead, against a real broker."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import time

import pytest
from typer.testing import CliRunner

from interruptible import INTERRUPTIBLE
from weft.broker.limits import ClientLimits
from weft.cli.app import app
from weft.cli.event_rows import EventRows
from weft.cli.event_source import EventSource
from weft.server.config import BrokerConfig
from weft.testing import broker


@pytest.fixture
def local():
    with broker(limits=ClientLimits(backoff=1_000, failures=1)) as local:
        yield local


def weft(local, *words: str, stdin: str | bytes = ""):
    return CliRunner().invoke(app, list(words), input=stdin, env={"WEFT_BROKER": local.address, "WEFT_TOKEN": ""})


def shown(local) -> list[dict]:
    """Every event that is stored."""
    stored = local.call(lambda node: node.core.end) - 1
    done = weft(local, "sub", "--since", "0", "--count", str(stored), "--timeout", "60", "--json")
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def until(done) -> None:
    """Wait for something that becomes true soon."""
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def test_lines_are_published_and_bad_ones_reported_with_their_number(local):
    lines = ['{"x": 1}', "", "# a comment", "nonsense", '{"x": 10000000000000000000000}', '{"x": 2}', "@file"]
    done = weft(local, "pub", stdin="\n".join(lines))
    assert done.exit_code == 1
    assert "line 4: the event is not JSON" in done.stderr
    assert "line 5: " in done.stderr
    assert "2 events published, 3 not" in done.stderr
    assert [event["attributes"] for event in shown(local)] == [{"x": 1}, {"x": 2}]


def test_what_is_advertised_is_published_where_that_is_required():
    events = '{"x": 1}\n{"x": 20}\n{"x": 100}\n'
    with broker(config=BrokerConfig(advertised=True)) as local:
        assert "advertise it first" in weft(local, "pub", stdin=events).stderr
        done = weft(local, "pub", "--advertise", "x < 10", "--advertise", "x > 90", stdin=events)
        assert (done.exit_code, "2 events published, 1 not" in done.stderr) == (1, True)
        assert [event["attributes"] for event in shown(local)] == [{"x": 1}, {"x": 100}]
        wrong = weft(local, "pub", "--advertise", "x <", stdin=events)
        assert wrong.exit_code != 0
        assert not wrong.stdout


def test_a_line_that_is_not_utf_8_is_reported_and_others_go_on(local):
    done = weft(local, "pub", "--json", stdin=b'{"x": "\xff"}\n{"x": 2}\n')
    assert json.loads(done.stdout) == {
        "published": 1,
        "not_published": 1,
        "bad": [{"place": "line 1", "reason": "it is not valid UTF-8"}],
    }


def test_files_of_every_kind_are_published(local, tmp_path):
    (tmp_path / "a.csv").write_text("magnitude,place\n6.1,Chile\n3,Peru\n")
    (tmp_path / "b.json").write_text('[{"magnitude": 5.5},\n {"magnitude": 4}]')
    cloud = {"specversion": "1.0", "id": "7", "source": "/usgs", "type": "quake", "data": {"felt": 12}}
    (tmp_path / "c.jsonl").write_text(json.dumps(cloud))
    done = weft(local, "pub", *(str(tmp_path / name) for name in ("a.csv", "b.json", "c.jsonl")))
    assert (done.exit_code, done.stderr.strip()) == (0, "5 events published")
    events = shown(local)
    assert events[0]["attributes"] == {"magnitude": 6.1, "place": "Chile"}
    assert (events[4]["attributes"]["id"], events[4]["payload"]) == ("7", {"felt": 12})


def test_a_refused_event_is_reported_with_its_line(local):
    from weft.broker.rules import Rights, Rules

    rules = Rules({"": Rights(publish=("x != 2",))})
    local.call(lambda node: node.set_rules(rules))
    done = weft(local, "pub", stdin='{"x": 1}\n\n{"x": 2}\n{"x": 3}\n')
    assert done.exit_code == 1
    assert "line 3: no rule allows this event" in done.stderr
    assert "2 events published, 1 not" in done.stderr
    alone = weft(local, "pub", stdin='{"x": 2}\n')
    assert alone.exit_code == 1
    assert "line 1: no rule allows this event" in alone.stderr
    assert "0 events published, 1 not" in alone.stderr


def test_a_named_subscriber_goes_on_where_it_stopped(local):
    assert weft(local, "sub", "x > 0", "--name", "alerts", "--timeout", "0.01").exit_code == 1, "nothing came"
    weft(local, "pub", stdin="".join(f'{{"x": {x}}}\n' for x in (1, 2, 3)))
    first = weft(local, "sub", "x > 0", "--name", "alerts", "--count", "2")
    assert first.stdout.splitlines() == ["offset   x", "1        1", "2        2"]
    assert weft(local, "sub", "x > 0", "--name", "alerts", "--count", "1").stdout.splitlines()[1] == "3        3"


def test_dead_letters_are_listed_retried_and_dropped(local):
    with local.connect_sync() as client:
        events = client.subscribe("x > 0", name="alerts")
        client.publish_many([{"x": 1}, {"x": 2}])
        for _ in range(2):
            events.receive(60).nack("cannot")
        until(lambda: len(client.dead_letters.list("alerts")) == 2)
        listed = json.loads(weft(local, "dead", "list", "alerts", "--json").stdout)
        assert [(each["offset"], each["reason"]) for each in listed] == [(1, "cannot"), (2, "cannot")]
        assert "cannot" in weft(local, "dead", "list", "alerts").stdout
        assert weft(local, "dead", "retry", "alerts", "1").stdout == "1 delivered again\n"
        again = events.receive(60)
        assert again["x"] == 1
        again.ack()
        until(lambda: len(client.dead_letters.list("alerts")) == 1)
        assert weft(local, "dead", "drop", "alerts", "--all").stdout == "1 removed\n"
        assert weft(local, "dead", "drop", "alerts", "2").exit_code == 1
        assert "0 of 1 delivered again; the others are not" in weft(local, "dead", "retry", "alerts", "2").stdout
        assert weft(local, "dead", "retry", "alerts").exit_code == 2
    assert weft(local, "dead", "list", "nobody").exit_code == 1


def test_a_broker_that_is_not_there_is_one_sentence(local):
    local.stop()
    done = weft(local, "pub", stdin='{"x": 1}')
    assert done.exit_code == 1
    assert done.stderr.startswith(f"weft: no broker at {local.address}: Connection refused")


def test_a_wrong_time_is_wrong_usage(local):
    assert weft(local, "sub", "--since", "yesterday").exit_code == 2


def test_events_of_a_pipe_are_read_as_they_come():
    class Pipe(io.BytesIO):
        read_lines = 0

        def readline(self, *most):
            Pipe.read_lines += 1
            return super().readline(*most)

    source = EventSource(["-"], Pipe(b'{"x": 1}\n{"x": 2}\n'), report=lambda *_: None)
    assert next(iter(source))["x"] == 1
    assert Pipe.read_lines == 1


def test_what_an_event_holds_cannot_disturb_a_terminal():
    (_, line) = EventRows().of(1, {"x": "a\x1b[31mred\nnext"})
    assert line.isprintable()


@pytest.mark.parametrize("command", ["sub", "pub"])
def test_ctrl_c_ends_a_command_without_a_traceback(local, command):
    environment = {**os.environ, "WEFT_BROKER": local.address}
    process = subprocess.Popen(
        [*INTERRUPTIBLE, command],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )
    with local.connect_sync() as client:
        events = client.subscribe("x = 1")
        if command == "pub":
            process.stdin.write('{"x": 1}\n')
            process.stdin.flush()
            assert events.receive(60)["x"] == 1
        else:
            until(lambda: local.call(lambda node: len(node.core._parts.matcher)) == 2)  # this client's, and the other
            client.publish({"x": 1})
            assert [process.stdout.readline().split() for _ in range(2)] == [["offset", "x"], ["1", "1"]]
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert (process.returncode, said) == (130, "weft: interrupted\n")


def test_an_event_is_explained(local):
    with local.connect_sync() as client, client.subscribe("x > 5", name="alerts"):
        done = weft(local, "explain", '{"x": 7}')
        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines()[1] == "  *  subscription 1 of alerts: x > 5"
        facts = json.loads(weft(local, "explain", '{"x": 5}', "--json").stdout)
        assert (facts["matched"], facts["whole"], facts["hops"][0]["matched"]) == (0, True, 0)
    done = weft(local, "explain", "nonsense")
    assert done.exit_code == 1
    assert "the event is not JSON" in done.stderr


EVIL = "s\x1b]52;c;cm0gLXJm\x1b\\\x1b[2J\x9b31m\u202e[/red]\nnext"


def test_what_clients_name_and_say_cannot_disturb_an_operators_terminal(local):
    import weft as library

    with library.connect_sync(local.address, name="evil") as client:
        client.subscribe(f"x > 0 AND k = '{EVIL}'", name=EVIL)
        failing = client.subscribe("x > 0", name="failing")
        client.publish({"x": 1, "k": EVIL, f"a{EVIL}": EVIL})
        failing.receive(timeout=60).nack(EVIL)
        until(lambda: weft(local, "dead", "list", "failing", "--json").stdout.count("offset"))
        event = json.dumps({"x": 1, "k": EVIL})
        for words in (
            ["status"],
            ["explain", event],
            ["dead", "list", "failing"],
            ["dead", "list", EVIL],
            ["sub", "x > 0", "--since", "0", "--count", "1"],
            ["sub", f"nonsense {EVIL}"],
            ["pub", f"{EVIL}.csv"],
        ):
            done = weft(local, *words)
            assert done.output, words
            assert all(line.isprintable() for line in done.output.splitlines()), words
            if words[0] not in {"pub", "status"}:
                done = weft(local, *words, "--json")
                assert all(line.isprintable() for line in done.stdout.splitlines()), words
                assert done.stdout, words
        assert EVIL in json.loads(weft(local, "dead", "list", "failing", "--json").stdout)[0]["reason"]


def test_many_bad_lines_are_counted_and_the_first_are_shown(local):
    done = weft(local, "pub", stdin="nonsense\n" * 3_000 + '{"x": 1}\n')
    assert done.exit_code == 1
    lines = done.stderr.splitlines()
    assert [lines[0][:13], lines[19][:14], lines[20:]] == [
        "weft: line 1:",
        "weft: line 20:",
        ["weft: 2,980 more are not shown", "1 event published, 3,000 not"],
    ]
    done = json.loads(weft(local, "pub", "--json", stdin="nonsense\n" * 3_000).stdout)
    assert (done["published"], done["not_published"], len(done["bad"])) == (0, 3_000, 1_000)


def test_a_timeout_without_the_events_is_a_failure(local):
    weft(local, "pub", stdin='{"x": 1}\n')
    some = ["sub", "--since", "0", "--timeout", "0.3"]
    assert weft(local, *some).exit_code == 0, "it came"
    done = weft(local, *some, "--count", "2")
    assert (done.exit_code, done.stderr.strip()) == (1, "weft: no event arrived for 0.3 s; 1 of 2 events came")
    done = weft(local, "sub", "x > 1", "--since", "0", "--timeout", "0.05")
    assert (done.exit_code, done.stderr.strip()) == (1, "weft: no event arrived for 0.05 s")
