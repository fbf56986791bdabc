"""Settings: file, environment and flags; what is wrong is said with its place."""

from __future__ import annotations

import json
import re

import pytest
from typer.testing import CliRunner

from weft.cli.app import app
from weft.errors import OptionError
from weft.protocol.addresses import Address
from weft.server.config import BrokerConfig, load_config


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "weft.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_flags_win_over_the_environment_and_the_environment_over_the_file(file):
    path = file('name = "file"\ndata = "d"\n[log]\nquota = "1 GiB"\nkeep_age = "2 d"\n')
    environment = {"WEFT_NAME": "environment", "WEFT_LOG_QUOTA": "2 GiB"}
    loaded = load_config(path, environment, {"log.quota": "3 GiB"})
    config = loaded.config
    assert (config.name, config.log.quota, config.log.keep_age) == ("environment", 3 << 30, 2 * 86_400_000_000)
    assert config.data == path.parent / "d"  # relative to the file
    assert loaded.sources["name"] == "WEFT_NAME"
    assert loaded.sources["data"] == str(path)


def test_times_and_sizes_of_limits_have_units():
    given = {"limits.heartbeat": "3 s", "limits.link_silence": "1 min", "limits.explain": "500 ms"}
    limits = load_config(flags=given | {"limits.link_bytes": "2 MiB"}).config.limits
    assert (limits.heartbeat, limits.link_silence, limits.explain) == (3_000_000, 60_000_000, 500_000)
    assert limits.link_bytes == 2 << 20


def test_without_anything_a_broker_is_durable_and_listens_on_this_machine_only():
    config = load_config().config
    assert config == BrokerConfig()
    assert [address.local for address in config.addresses] == [True]
    assert not config.memory
    assert config.limits.idle > 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('dat = "x"', "dat is not a setting: did you mean 'data'?"),
        ("[log]\nqouta = 1", "log.qouta is not a setting: did you mean 'quota'?"),
        ('[log]\nquota = "much"', "log.quota is 'much'; write a number of bytes, such as \"10 GiB\""),
        ("[log]\nquota = -1", "log.quota is -1; write a number of bytes"),
        ('[limits]\nidle = "soon"', "limits.idle is 'soon'; write a duration"),
        ("[limits]\nconnections = true", "limits.connections is True; write a whole number"),
        ("log = 3", "log is a table; write [log]"),
        ("name = 7", "name is 7; write a text"),
        ('listen = ["weft://0.0.0.0"]', "in plain text to other machines"),
        ('listen = ["weft+tls://0.0.0.0"]', "needs TLS: set tls.certificate"),
        ("listen = []", "listen is empty"),
        ('listen = ["http://localhost"]', "http:// is not a scheme of Weft"),
        ('http = "there"', "write a host and a port"),
        ('[links.south]\naddress = "weft://localhost"', "a broker with links needs a name"),
        ('name = "n"\n[links.south]\nadress = "x"', "adress is not a setting: did you mean 'address'?"),
        ('name = "n"\n[links.south]\naddress = "http://x"', "links.south: http:// is not a scheme"),
        ('name = "n"\n[links.n]\naddress = ""', "is this broker itself"),
        ('name = "a b"', "letters, digits"),
        ("workers = 0", "workers is 0"),
        ("workers = 2\nmemory = true", "leave out memory"),
        ('[tls]\nkey = "k.pem"', "tls.certificate is missing"),
        ('[logging]\nformat = "xml"', "choose one of text, json"),
        ("x = [", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_said(file, text, said):
    with pytest.raises(OptionError) as caught:
        load_config(file(text))
    assert said in str(caught.value)


def test_a_variable_that_is_nearly_a_setting_is_refused_and_others_are_ignored():
    with pytest.raises(OptionError, match="did you mean WEFT_LOG_QUOTA"):
        load_config(environment={"WEFT_LOG_QOUTA": "1"})
    load_config(environment={"WEFT_EXAMPLES": "10", "PATH": "/bin"})


def test_a_setting_of_the_command_line_must_exist():
    with pytest.raises(OptionError, match=r"the command line: log.quot is not a setting: did you mean 'log.quota'"):
        load_config(flags={"log.quot": "1"})
    with pytest.raises(OptionError, match="log is not a setting"):
        load_config(flags={"log": "1"})


def test_a_quota_is_not_filled_by_what_nobody_needs():
    assert load_config(flags={"log.quota": 100}).config.log.retention.size == 50
    assert load_config(flags={"log.keep_size": 0}).config.log.retention.size is None


def test_check_shows_what_holds_and_where_it_comes_from(file):
    path = file('name = "north"\n')
    run = CliRunner().invoke(app, ["serve", "--config", str(path), "--set", "log.quota=1 GiB", "--check", "--json"])
    assert run.exit_code == 0
    shown = json.loads(run.stdout)
    assert shown["settings"]["log.quota"] == 1 << 30
    assert shown["sources"] == {"name": str(path), "log.quota": "the command line"}
    shown = CliRunner().invoke(app, ["serve", "--config", str(path), "--set", "log.quota=1 GiB", "--check"])
    assert shown.exit_code == 0
    assert re.search(r"log.quota +1 GiB +the command line", shown.stdout)
    assert re.search(r"log.keep_age +7 d +default", shown.stdout)


def test_check_looks_at_the_files(file, tmp_path):
    path = file('listen = ["weft+tls://localhost"]\n[tls]\ncertificate = "none.pem"\n')
    run = CliRunner().invoke(app, ["serve", "--config", str(path), "--check"])
    assert run.exit_code == 1
    assert "none.pem does not exist" in run.stderr


@pytest.mark.parametrize(
    "text",
    ["weft://localhost:9338", "weft+tls://[::1]:1", "weft+unix:///run/we%20ft.sock", "weft://127.0.0.1:0"],
)
def test_an_address_is_read_as_it_is_written(text):
    assert str(Address.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "weft://", "weft://h:x", "weft://h:70000", "weft://u:p@h", "weft+unix://h/p", "weft+unix://", "weft://h/p"],
)
def test_what_is_not_an_address_is_refused(text):
    with pytest.raises(OptionError):
        Address.parse(text)
