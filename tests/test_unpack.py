"""Where the .pyz unpacks: only where nobody else can write, and nowhere rather than there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from agentstate.unpack import find_root

posix_only = pytest.mark.skipif(os.name == "nt", reason="modes and owners are those of POSIX")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    return folder


def fallback(temporary: Path) -> str:
    return str(temporary / f".shiv-{os.geteuid()}")


@posix_only
def test_the_home_comes_first_and_the_folder_is_private(home: Path, temporary: Path) -> None:
    found = find_root({"TMPDIR": str(temporary), "AGENTSTATE_DB": "/data/x.db"}, [])

    assert found == str(home / ".shiv")
    assert stat.S_IMODE((home / ".shiv").stat().st_mode) == 0o700
    assert list(temporary.iterdir()) == []


@posix_only
@pytest.mark.parametrize(
    ("environ", "arguments"),
    [
        ({}, ["serve", "--db", "{}/data/x.db"]),
        ({}, ["--db={}/data/x.db", "--mock"]),
        ({"AGENTSTATE_DB": "{}/data/x.db"}, []),
        ({"AGENTSTATE_STORE_PATH": "{}/data/x.db", "AGENTSTATE_DB": "/gone/x.db"}, []),
    ],
)
def test_without_a_home_it_goes_beside_the_database(
    environ: dict[str, str],
    arguments: list[str],
    tmp_path: Path,
    temporary: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "gone"))
    (tmp_path / "data").mkdir()
    environ = {name: value.format(tmp_path) for name, value in environ.items()}

    found = find_root(
        {"TMPDIR": str(temporary), **environ}, [each.format(tmp_path) for each in arguments]
    )

    assert found == str(tmp_path / "data" / ".shiv")


@posix_only
@pytest.mark.parametrize("arguments", [[], ["--db"], ["--db", "/gone/x.db"]])
def test_last_comes_the_temporary_folder(
    arguments: list[str], tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "gone"))
    monkeypatch.chdir(tmp_path)

    assert find_root({"TMPDIR": str(temporary)}, arguments) == fallback(temporary)


@posix_only
def test_where_nothing_can_be_written_there_is_no_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/dev/null/home")

    assert find_root({"TMPDIR": "/dev/null/tmp"}, ["--db", "/dev/null/x.db"]) is None


@posix_only
def test_a_folder_that_others_may_write_to_is_passed_over(
    home: Path, temporary: Path, tmp_path: Path
) -> None:
    for mode in (0o777, 0o770, 0o702):
        (home / ".shiv").mkdir(exist_ok=True)
        (home / ".shiv").chmod(mode)

        assert find_root({"TMPDIR": str(temporary)}, []) == fallback(temporary)


@posix_only
def test_a_link_is_passed_over(home: Path, temporary: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    (home / ".shiv").symlink_to(tmp_path / "elsewhere")

    assert find_root({"TMPDIR": str(temporary)}, []) == fallback(temporary)


@posix_only
def test_a_file_is_passed_over(home: Path, temporary: Path) -> None:
    (home / ".shiv").write_text("")

    assert find_root({"TMPDIR": str(temporary)}, []) == fallback(temporary)


@posix_only
def test_a_strangers_folder_is_passed_over(
    home: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.lstat(home)

    class Strangers:
        st_mode = found.st_mode
        st_uid = os.geteuid() + 1

    monkeypatch.setattr(os, "lstat", lambda _: Strangers())

    assert find_root({"TMPDIR": str(temporary)}, []) is None


@posix_only
def test_a_folder_that_is_ours_already_is_used_again(home: Path) -> None:
    assert find_root({}, []) == find_root({}, []) == str(home / ".shiv")
