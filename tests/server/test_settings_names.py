"""Settings that have been renamed: the old name is accepted in every source, with a note that says the new one."""

import pytest

from weft.errors import OptionError
from weft.server.config import RENAMED, RENAMED_ROLES, load_config

VALUES = {
    "auth.longest": "1 h",
    "auth.longest_wait": "2 min",
    "balance.rest": "4 s",
    "connections.most": "77",
    "connections.patience": "3 s",
    "limits.floors": "5 ms",
    "limits.longest_backoff": "6 s",
    "limits.strangers": "88",
}


@pytest.mark.parametrize("old", RENAMED)
@pytest.mark.parametrize("source", ["file", "environment", "flag"])
def test_an_old_name_is_accepted_with_a_note(old, source, tmp_path):
    table, _, name = old.partition(".")
    file = tmp_path / "weft.toml"
    file.write_text(f'[{table}]\n{name} = "{VALUES[old]}"\n')
    loaded = {
        "file": lambda: load_config(file),
        "environment": lambda: load_config(None, {f"WEFT_{old.upper().replace('.', '_')}": VALUES[old]}),
        "flag": lambda: load_config(None, {}, {old: VALUES[old]}),
    }[source]()
    assert loaded.config == load_config(None, {}, {RENAMED[old]: VALUES[old]}).config
    (note,) = loaded.notes
    assert note.endswith(f"{old} is now called {RENAMED[old]}")


def test_a_name_that_was_never_one_is_refused(tmp_path):
    file = tmp_path / "weft.toml"
    file.write_text("[connections]\nmaximum = 5\n")
    with pytest.raises(OptionError, match=r"connections.maximum is not a setting; did you mean 'max'|is not a setting"):
        load_config(file)


@pytest.mark.parametrize("old", RENAMED_ROLES)
def test_an_old_role_is_accepted_with_a_note(old, tmp_path):
    file = tmp_path / "weft.toml"
    now = RENAMED_ROLES[old]
    for role, notes in ((old, (f"links.b.role: {old} is now called {now}",)), (now, ())):
        file.write_text(f'name = "a"\n[links.b]\nrole = "{role}"\n[links.c]\n')
        loaded = load_config(file)
        assert {name: link.role for name, link in loaded.config.links.items()} == {"b": now, "c": "peer"}
        assert loaded.notes == notes
