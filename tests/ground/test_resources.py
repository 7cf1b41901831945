"""Packaged files: found, listed, and no way out of their folder. Wheel and .pyz: test_build."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from agentstate.ground import resources
from agentstate.ground.errors import NotFound
from agentstate.ground.resources import list_web, read_data, read_web

OUTSIDE = [
    "", "/", "..", "../pyproject.toml", "a/../../pyproject.toml", "./index.html", "a//b",
    "/etc/passwd", "..\\pyproject.toml", "C:/x", "a\0b", "gone.txt",
]  # fmt: skip


@pytest.fixture
def web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "web"
    (folder / "views").mkdir(parents=True)
    (folder / "index.html").write_bytes(b"<!doctype html>")
    (folder / "views" / "costs.js").write_bytes(b"export {};\n")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    monkeypatch.setattr(resources, "_web", lambda: folder)
    return folder


@pytest.mark.usefixtures("web")
def test_files_of_the_dashboard_are_listed_and_read() -> None:
    assert list_web() == ("index.html", "views/costs.js")
    assert read_web("views/costs.js") == b"export {};\n"


@pytest.mark.usefixtures("web")
@pytest.mark.parametrize("name", [*OUTSIDE, "../secret.txt", "views"])
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    with pytest.raises(NotFound):
        read_web(name)


def test_files_inside_a_zip_are_found_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("web/index.html", b"<!doctype html>")
        archive.writestr("web/views/costs.js", b"export {};\n")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        monkeypatch.setattr(resources, "_web", lambda: zipfile.Path(archive, "web/"))

        assert list_web() == ("index.html", "views/costs.js")
        assert read_web("views/costs.js") == b"export {};\n"
        with pytest.raises(NotFound):
            read_web("views")


def test_without_a_dashboard_nothing_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resources, "_web", lambda: tmp_path / "gone")

    assert list_web() == ()
    with pytest.raises(NotFound):
        read_web("index.html")


def test_in_a_checkout_the_dashboard_lies_beside_the_package() -> None:
    root = Path(__file__).resolve().parents[2]

    assert Path(str(resources._web())) == root / "web"


def test_the_price_table_is_packaged() -> None:
    assert json.loads(read_data("model_prices.json"))["models"]


@pytest.mark.parametrize("name", [*OUTSIDE, "../ground/settings.py"])
def test_data_has_no_way_out_either(name: str) -> None:
    with pytest.raises(FileNotFoundError):
        read_data(name)
