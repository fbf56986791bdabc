"""Access rules in files, and files that are read again when they change."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from weft.broker.rules import NOTHING
from weft.errors import AccessError, OptionError
from weft.language.text import parse
from weft.server.log_lines import LogLines
from weft.server.security.access_file import parse_access, read_access
from weft.server.security.files import WatchedFile

RULES = b"""
[groups]
analysts = ["ann", "bob"]

[[rule]]
for = "analysts"
subscribe = "type = 'quake' AND magnitude >= 3"
rights = ["history"]

[[rule]]
for = ["bob", "eve"]
subscribe = ["type = 'quake' AND magnitude < 3", "type = 'flight'"]
publish = true

[[rule]]
for = "*"
subscribe = "public"
"""


def test_a_principal_has_what_its_own_rules_its_groups_and_everybodys_allow() -> None:
    rules = parse_access(RULES)
    assert rules.of("ann").rights.subscribe == ("public", "type = 'quake' AND magnitude >= 3")
    assert rules.of("ann").rights.further == {"history"}
    assert not rules.of("ann").publishes_all
    rules.of("bob").check_subscribe(parse("type = 'quake' AND magnitude > 0"))  # by two rules together
    assert rules.of("bob").publishes_all
    assert rules.of("eve").rights.further == frozenset()
    assert rules.of("stranger").rights == NOTHING._replace(subscribe=("public",))
    with pytest.raises(AccessError, match="magnitude >= 3"):
        rules.of("ann").check_subscribe(parse("type = 'quake' AND magnitude >= 2"))


def test_an_empty_file_allows_nothing() -> None:
    rules = parse_access(b"")
    assert rules.of("ann").rights == NOTHING
    with pytest.raises(AccessError, match="status"):
        rules.of("ann").check("status")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"[[rule", "not valid TOML"),
        (b"\xff", "not valid TOML"),
        (b'[[rule]]\nsubscribe = "x"', "`for`"),
        (b'[[rule]]\nfor = "a"\nsubscribes = "x"', "subscribes"),
        (b'[[rule]]\nfor = "a"\nrights = ["everything"]', "everything"),
        (b'[[rule]]\nfor = "a"\nsubscribe = 7', "subscribe"),
        (b'[[rule]]\nfor = ""', "for"),
        (b'[[rule]]\nfor = "a"\n[[rule]]\nfor = "a"\nsubscribe = "x =>= 5"', "rule 2: subscribe: "),
        (b'[[rule]]\nfor = "a"\npublish = ["x > 5", "x >"]', "rule 1: publish: "),
        (b"[rules]", "rules"),
    ],
)
def test_a_file_that_is_wrong_says_where(text: bytes, said: str) -> None:
    with pytest.raises(OptionError) as error:
        parse_access(text, "access.toml")
    assert str(error.value).startswith("access.toml")
    assert said in str(error.value)


def test_a_broken_file_keeps_the_old_rules_and_is_reported_once(tmp_path: Path) -> None:
    file, written = tmp_path / "access.toml", list[str]()
    file.write_bytes(RULES)
    watched = WatchedFile(file, read_access, LogLines(write=written.append))
    before = watched.value
    assert not watched.poll()
    replace(file, b"[[rule")
    assert [watched.poll() for _ in range(3)] == [False] * 3
    assert watched.value is before
    assert len(written) == 1
    assert "file not reloaded" in written[0]
    replace(file, b"[[rule\nagain")
    assert [watched.poll(), watched.poll()] == [False, False]
    assert len(written) == 2
    replace(file, b'[[rule]]\nfor = "*"\nsubscribe = true')
    assert [watched.poll(), watched.poll()] == [False, True]
    assert watched.value.of("ann").reads_all


def test_a_file_that_is_gone_keeps_the_old_rules(tmp_path: Path) -> None:
    file, written = tmp_path / "access.toml", list[str]()
    file.write_bytes(RULES)
    watched = WatchedFile(file, read_access, LogLines(write=written.append))
    file.unlink()
    assert [watched.poll(), watched.poll()] == [False, False]
    assert len(written) == 1
    file.write_bytes(b"")
    assert [watched.poll(), watched.poll()] == [False, True]


def test_a_file_is_not_read_while_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "access.toml"
    file.write_bytes(RULES)
    watched = WatchedFile(file, read_access, LogLines(level="error"))
    before = watched.value
    with file.open("wb", buffering=0) as being_written:  # an editor empties it, then writes it anew
        for part in RULES.splitlines(keepends=True):
            assert not watched.poll()
            assert watched.value is before
            being_written.write(part)
    assert [watched.poll(), watched.poll(), watched.poll()] == [False, True, False]
    assert watched.value.of("bob").publishes_all


def test_a_link_that_points_elsewhere_counts_as_a_change(tmp_path: Path) -> None:
    for name, text in (("one", b""), ("two", RULES)):
        (tmp_path / name).write_bytes(text)
    link = tmp_path / "access.toml"
    link.symlink_to("one")
    watched = WatchedFile(link, read_access, LogLines(level="error"))
    (tmp_path / "new").symlink_to("two")
    os.replace(tmp_path / "new", link)
    assert [watched.poll(), watched.poll()] == [False, True]
    assert watched.value.of("bob").publishes_all


def replace(file: Path, text: bytes) -> None:
    """As editors do: a new file in place of the old."""
    new = file.with_suffix(".new")
    new.write_bytes(text)
    os.replace(new, file)
