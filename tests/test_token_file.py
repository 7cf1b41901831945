"""The token that is made once and kept beside the database."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from agentstate.ground.errors import SettingError
from agentstate.ground.settings import ServerSettings, Settings, StoreSettings
from agentstate.token_file import (
    AUTO,
    file_of,
    find_token,
    make_token,
    resolve_token,
    tokens_of,
)

LONG = "x" * 40


def settings_in(folder: Path, token: str | None) -> Settings:
    server = replace(ServerSettings(), token=token)
    return Settings(server=server, store=StoreSettings(path=str(folder / "a.db")))


def test_it_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, AUTO)

    token = resolve_token(settings)

    path = file_of(settings)
    assert path == tmp_path / "a.db.token"
    assert path.read_text() == f"{token}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert resolve_token(settings) == token
    assert resolve_token(settings_in(tmp_path, LONG)) == LONG
    assert resolve_token(settings_in(tmp_path, None)) is None


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_what_others_can_read_is_no_secret(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "token"
    path.write_text(LONG)
    path.chmod(mode)

    with pytest.raises(SettingError, match="others may read"):
        make_token(path)


def test_a_file_with_no_token_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.touch(mode=0o600)

    with pytest.raises(SettingError, match="holds no token"):
        make_token(path)


def test_where_nothing_can_be_written_it_is_said(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="cannot write"):
        make_token(tmp_path / "missing" / "token")


def test_each_list_has_its_role() -> None:
    server = replace(
        ServerSettings(),
        approve_tokens=("p" * 30,), read_tokens=("r" * 30,), client_tokens=("c" * 30,),
    )  # fmt: skip

    tokens = tokens_of(server, LONG)

    assert [tokens.role_of(letter * 30) for letter in "prc"] == ["approve", "read", "agent"]
    assert tokens.role_of(LONG) == "admin"
    assert not tokens_of(ServerSettings(), None)
    with pytest.raises(SettingError, match="token too"):
        tokens_of(server, None)


def test_the_verbs_find_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AGENTSTATE_TOKEN", raising=False)
    here, elsewhere = "http://127.0.0.1:8080", "http://10.1.2.3:8080"
    assert find_token(here) is None

    token = make_token(tmp_path / "agentstate.db.token")
    assert find_token(here) == find_token("http://[::1]:1") == token
    assert find_token(elsewhere) is None  # whoever that is

    monkeypatch.setenv("AGENTSTATE_TOKEN", AUTO)
    assert find_token(here) == token
    monkeypatch.setenv("AGENTSTATE_TOKEN", LONG)
    assert find_token(here) == find_token(elsewhere) == LONG
