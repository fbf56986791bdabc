"""`weft token` and `weft access`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weft.cli.app import app

RULES = """
[groups]
analysts = ["ann", "bob"]
[[rule]]
for = "analysts"
subscribe = "magnitude >= 3"
rights = ["history"]
"""


def weft(*arguments: object, code: int = 0, input: str = "") -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)], input=input)
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize("algorithm", ["EdDSA", "RS256", "HS256"])
def test_a_key_signs_tokens_that_its_public_half_verifies(tmp_path: Path, algorithm: str) -> None:
    key, keys = tmp_path / "signing.jwk", tmp_path / "keys.json"
    weft("token", "new", key, "--keys", keys, "--algorithm", algorithm)
    weft("token", "new", tmp_path / "next.jwk", "--keys", keys)
    assert key.stat().st_mode & 0o777 == 0o600
    assert algorithm == "HS256" or '"d"' not in keys.read_text()
    signed = weft(
        "token", "sign", key, "--for", "ann", "--expires", "8h", "--audience", "north", "--issuer", "me", "--once"
    )
    answer = weft("token", "check", keys, "--audience", "north", "--issuer", "me", "--json", input=signed)
    assert json.loads(answer)["principal"] == "ann"
    assert weft("token", "check", keys, "--audience", "north", input=signed).startswith("ann, until ")
    assert "another broker" in weft("token", "check", keys, "--audience", "south", input=signed, code=1)


def test_a_private_key_is_never_overwritten(tmp_path: Path) -> None:
    key, keys = tmp_path / "signing.jwk", tmp_path / "keys.json"
    weft("token", "new", key, "--keys", keys)
    before = key.read_bytes(), keys.read_bytes()
    assert "exists" in weft("token", "new", key, "--keys", keys, code=1)
    assert (key.read_bytes(), keys.read_bytes()) == before


def test_wrong_files_and_times_are_said_to_be_wrong(tmp_path: Path) -> None:
    key, keys = tmp_path / "signing.jwk", tmp_path / "keys.json"
    weft("token", "new", key, "--keys", keys)
    assert "not a private key" in weft("token", "sign", keys, "--for", "ann", code=1)
    assert "duration" in weft("token", "sign", key, "--for", "ann", "--expires", "soon", code=1)
    assert "cannot be read" in weft("token", "sign", tmp_path / "none", "--for", "ann", code=1)
    (tmp_path / "other").write_text("[]")
    assert "not a JWK set" in weft("token", "new", tmp_path / "k2", "--keys", tmp_path / "other", code=1)


def test_rules_are_checked_and_shown(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    file.write_text(RULES)
    assert "2 principals: ann, bob" in weft("access", "check", file)
    assert weft("access", "check", file, "--for", "ann").splitlines() == [
        "subscribe: magnitude >= 3",
        "publish: nothing",
        "rights: history",
    ]
    assert json.loads(weft("access", "check", file, "--for", "ann", "--json"))["further"] == ["history"]
    assert "may subscribe" in weft("access", "check", file, "--for", "ann", "--subscribe", "magnitude = 4")
    refused = weft("access", "check", file, "--for", "ann", "--subscribe", "magnitude > 2", code=1)
    assert "the nearest rule is magnitude >= 3" in refused
    assert "--for" in weft("access", "check", file, "--subscribe", "magnitude > 2", code=1)
    file.write_text("[[rule")
    assert "not valid TOML" in weft("access", "check", file, code=1)
