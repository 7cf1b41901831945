"""build.py and what it makes: the .pyz, the wheel, the pins, and its words when it cannot.

The artefacts are the real ones, run as a user runs them: from another folder, with no home, by
several processes at once.
"""

from __future__ import annotations

import ast
import hashlib
import http.client
import importlib.util
import json
import os
import re
import runpy
import shutil
import signal
import stat
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from agentstate import __version__
from agentstate.house.bench_peers import read_peers

ROOT = Path(__file__).resolve().parents[1]
NOWHERE = "/dev/null/nowhere"  # nobody can make a folder there, not even root
TIMEOUT_S = 60
PINS = ("run", "build", "test")

slow = pytest.mark.slow


def load_build() -> Any:
    spec = importlib.util.spec_from_file_location("agentstate_build", ROOT / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()


@pytest.fixture(scope="session")
def archive() -> Path:
    path = build.build()
    assert isinstance(path, Path)
    return path


@pytest.fixture(scope="session")
def python() -> Path:
    """The interpreter of the environment that builds: it has setuptools, shiv, h11 and certifi."""
    path = build.environment("build")
    assert isinstance(path, Path)
    return path


def run_archive(
    archive: Path, *arguments: str, environ: Mapping[str, str], cwd: Path
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(archive), *arguments],
        env={"PATH": os.environ["PATH"], **environ},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@contextmanager
def serving(command: list[str], environ: Mapping[str, str], cwd: Path) -> Iterator[tuple[str, int]]:
    """Run a server, yield its address, and let SIGTERM end it with 0."""
    process = subprocess.Popen(
        command,
        env={"PATH": os.environ["PATH"], **environ},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        printed = process.stdout.readline()
        found = re.match(r"AgentState listening on http://([\d.]+):(\d+)", printed)
        if found is None:
            pytest.fail(f"the server did not start:\n{printed}{process.communicate(timeout=5)[0]}")
        yield found[1], int(found[2])
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    finally:
        process.kill()
        process.communicate()


def get(address: tuple[str, int], path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(*address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def assert_dashboard_is_whole(address: tuple[str, int]) -> None:
    """Follow every reference of the dashboard's pages, scripts and styles to the end."""
    wanted, seen = ["/dashboard/"], set[str]()
    while wanted:
        path = wanted.pop()
        if path in seen:
            continue
        seen.add(path)
        status, text = get(address, path)
        assert status == 200, path
        references = [
            *re.findall(r"""(?:src|href)=["']([^"'#]+)["']""", text if path.endswith("/") else ""),
            *re.findall(r"""(?:from|import)\s*\(?\s*["']([./][^"']*)["']""", text),
            *re.findall(r"""url\(["']?([^"')]+)["']?\)""", text),
        ]
        for reference in references:
            assert not reference.startswith(("http:", "https:", "//")), f"{path} -> {reference}"
            if not reference.startswith(("data:", "#")):  # "#" = in the same page
                wanted.append(urljoin(path, reference))
    assert len(seen) > 1, "the dashboard refers to nothing"


# -- the .pyz


@slow
def test_the_archive_is_small_executable_and_starts_with_a_shebang(archive: Path) -> None:
    assert archive.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    assert archive.stat().st_mode & 0o111 == 0o111
    assert archive.stat().st_size <= 1_000_000


def test_the_archive_has_the_code_of_the_sources_line_for_line() -> None:
    def code_of(text: str) -> list[tuple[int, str]]:
        tree = ast.parse(text)
        for node in ast.walk(tree):
            kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
            if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
                node.body[0] = ast.Pass(lineno=node.body[0].lineno, col_offset=0)
        return [(getattr(node, "lineno", 0), type(node).__name__) for node in ast.walk(tree)] + [
            (0, ast.dump(tree))
        ]

    for path in (ROOT / "agentstate").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        slimmed = build.slim(text)
        assert code_of(slimmed) == code_of(text), path
        assert "\n    # " not in slimmed


def test_scripts_and_style_sheets_lose_comments_that_have_lines_of_their_own() -> None:
    text = (
        "/* a\n b */\n.x { color: red; } /* kept */\n  // gone\nlet u = 'https://h'; // kept\n"
        "/** c */\n"
    )

    slimmed = build.slim_script(text)

    kept = ["", "", ".x { color: red; } /* kept */", "", "let u = 'https://h'; // kept", "", ""]
    assert slimmed.split("\n") == kept


def test_certificates_lose_what_is_said_of_them() -> None:
    assert build.slim_roots("# CN=a\n-----BEGIN\nx\n") == "-----BEGIN\nx\n"


@slow
def test_the_archive_holds_all_of_the_program_and_nothing_of_the_builder(archive: Path) -> None:
    with zipfile.ZipFile(archive) as outer, outer.open("site-packages.zip") as inner:
        outside = b"".join(map(outer.read, outer.namelist()))
        with zipfile.ZipFile(inner) as opened:
            names = set(opened.namelist())
            contents = b"".join(map(opened.read, names))

    sources = {
        f"site-packages/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "agentstate").rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".md")
    }
    assets = {
        f"site-packages/agentstate/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "web").rglob("*")
        if path.is_file()
    }
    assert (sources | assets) - names == set()
    assert {
        "site-packages/agentstate/data/model_prices.json",
        "site-packages/agentstate/py.typed",
        "site-packages/certifi/cacert.pem",
        "site-packages/h11/__init__.py",
    } <= names
    assert {name.split("/")[1] for name in names if name.startswith("site-packages/")} >= {
        f"agentstate-{__version__}.dist-info"
    }
    assert not [name for name in names if name.endswith((".pyc", "direct_url.json"))]
    assert str(ROOT).encode() not in outside + contents


@slow
def test_the_archive_records_and_replays_with_nothing_of_the_checkout_beside_it(
    archive: Path, tmp_path: Path
) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    demo = [sys.executable, str(archive), "demo", "crash", "--steps", "6"]
    done = subprocess.run(
        demo, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Finished steps that were asked twice: 0." in done.stdout


@slow
def test_the_same_sources_give_the_same_bytes_anywhere(
    archive: Path, python: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "a much longer way to another folder"
    elsewhere.mkdir()
    for name in build.SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, elsewhere / name, ignore=build.LEFT_OUT)
        elif (ROOT / name).exists():
            shutil.copyfile(ROOT / name, elsewhere / name)  # with today's time and our umask
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    before = os.umask(0o077)
    try:
        build.pack(elsewhere, sorted(build.WHEELS.glob("*.whl")), python, tmp_path / "x.pyz")
    finally:
        os.umask(before)

    digests = [hashlib.sha256(path.read_bytes()).digest() for path in (archive, tmp_path / "x.pyz")]
    assert digests[0] == digests[1]
    assert build.bill_of(tmp_path / "x.pyz").read_text() == build.bill_of(archive).read_text()


@slow
def test_beside_it_lies_a_bill_of_what_is_really_in_it(archive: Path) -> None:
    bill = json.loads(build.bill_of(archive).read_text("utf-8"))

    whole, parts = bill["metadata"]["component"], {row["name"]: row for row in bill["components"]}
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert (whole["name"], whole["version"], whole["type"]) == (
        "agentstate", __version__, "application",
    )  # fmt: skip
    assert whole["hashes"] == [{"alg": "SHA-256", "content": digest}]
    # Every top-level folder in it is some part's; every part is pinned, and its wheel by this hash.
    with zipfile.ZipFile(archive) as outer, outer.open("site-packages.zip") as inner:
        folders = {name.split("/")[0] for name in outer.namelist() if "/" in name}
        with zipfile.ZipFile(inner) as opened:
            folders |= {name.split("/")[1] for name in opened.namelist()}
    kept = {each for each in folders if not each.endswith(".dist-info")}
    assert kept == {"agentstate", "certifi", "h11", "_bootstrap"}
    assert parts.keys() == {"certifi", "h11", "shiv"}
    pinned = read_pins("build")
    pins = (ROOT / "tests" / "requirements-run.txt").read_text()
    for name, part in parts.items():
        assert part["version"] == pinned[name]
        assert part["purl"] == f"pkg:pypi/{name}@{part['version']}"
        assert part["licenses"][0]["license"]["id"] in ("MIT", "MPL-2.0", "BSD-2-Clause")
        if name != "shiv":
            assert f"--hash=sha256:{part['hashes'][0]['content']}" in pins
    assert bill["dependencies"] == [
        {"ref": whole["bom-ref"], "dependsOn": [parts[name]["bom-ref"] for name in sorted(parts)]}
    ]


@slow
def test_a_bill_tells_of_a_changed_part(archive: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.pyz"
    with zipfile.ZipFile(archive) as outer, zipfile.ZipFile(other, "w") as made:
        for name in outer.namelist():
            tail = b"\n" if name == "_bootstrap/filelock.py" else b""
            made.writestr(name, outer.read(name) + tail)

    bills = [json.loads(build.write_bill(path, [])) for path in (archive, other)]

    parts = [{row["name"]: row for row in bill["components"]} for bill in bills]
    assert bills[0]["serialNumber"] != bills[1]["serialNumber"]
    assert parts[0]["shiv"] != parts[1]["shiv"]
    assert parts[0]["h11"] == parts[1]["h11"]


@slow
def test_it_runs_with_no_home_in_a_folder_that_cannot_be_written(
    archive: Path, tmp_path: Path
) -> None:
    environ = {"HOME": NOWHERE, "TMPDIR": str(tmp_path)}

    for _ in ("unpacking", "unpacked"):
        done = run_archive(archive, "--version", environ=environ, cwd=Path("/proc"))
        assert (done.returncode, done.stdout, done.stderr) == (0, f"agentstate {__version__}\n", "")

    (root,) = tmp_path.iterdir()
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@slow
def test_it_runs_where_nothing_at_all_can_be_written(archive: Path) -> None:
    environ = {"HOME": NOWHERE, "TMPDIR": NOWHERE}

    done = run_archive(archive, "--help", environ=environ, cwd=Path("/proc"))

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: agentstate")


@slow
def test_first_starts_at_the_same_moment_do_not_disturb_each_other(
    archive: Path, tmp_path: Path
) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, str(archive), "--version"],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(6)
    ]
    said = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]

    assert said == [f"agentstate {__version__}\n"] * 6
    assert [process.returncode for process in processes] == [0] * 6
    unpacked = [path for path in (tmp_path / ".shiv").iterdir() if path.is_dir()]
    assert len(unpacked) == 1


@slow
@pytest.mark.parametrize("temporary", ["{}", NOWHERE])  # unpacked, and straight from the archive
def test_the_archive_serves_the_whole_dashboard(
    archive: Path, tmp_path: Path, temporary: str
) -> None:
    environ = {"HOME": NOWHERE, "TMPDIR": temporary.format(tmp_path)}
    # A database that is named offers its folder to unpack to; the default one does not.
    database = ["--db", f"{tmp_path}/data/x.db"] if temporary != NOWHERE else []
    cwd = tmp_path / "work"
    cwd.mkdir()
    (tmp_path / "data").mkdir()
    command = [sys.executable, str(archive), "serve", "--mock", "--port", "0", *database]

    with serving(command, environ, cwd) as address:
        assert get(address, "/healthz")[0] == 200
        assert_dashboard_is_whole(address)


# -- wheel and sdist


def make_sdist(python: Path, folder: Path) -> Path:
    """Make the source distribution of a clean copy, and unpack it."""
    source = folder / "source"
    source.mkdir()
    for name in build.SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=build.LEFT_OUT)
        elif (ROOT / name).exists():
            shutil.copyfile(ROOT / name, source / name)
    code = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    subprocess.run(
        [str(python), "-c", code, str(folder)],
        cwd=source, check=True, capture_output=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    (packed,) = folder.glob("*.tar.gz")
    shutil.unpack_archive(packed, folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


@slow
@pytest.mark.parametrize("origin", ["tree", "sdist"])
def test_an_installed_wheel_serves_the_whole_dashboard(
    origin: str, python: Path, tmp_path: Path
) -> None:
    """Case 166-pkg-wheel-has-assets: works from the tree, fails from the wheel."""
    source = ROOT if origin == "tree" else make_sdist(python, tmp_path)
    (tmp_path / "made").mkdir()
    wheel = build.make_wheel(source, python, tmp_path / "made")
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        opened.extractall(tmp_path / "installed")

    assets = {
        f"agentstate/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "web").rglob("*")
        if path.is_file()
    }
    assert assets - names == set()
    assert {"agentstate/data/model_prices.json", "agentstate/py.typed"} <= names
    environ = {"PYTHONPATH": str(tmp_path / "installed"), "HOME": str(tmp_path)}
    (tmp_path / "elsewhere").mkdir()
    command = [str(python), "-m", "agentstate", "--mock", "--port", "0"]
    with serving(command, environ, tmp_path / "elsewhere") as address:
        assert_dashboard_is_whole(address)


def test_every_package_is_in_the_wheel() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = project["tool"]["setuptools"]["packages"]

    folders = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "agentstate").rglob("*.py")
    }
    assert listed == sorted(listed)
    assert folders | {"agentstate.data", "agentstate.web"} == set(listed)


# -- pins


def read_pins(name: str) -> dict[str, str]:
    text = (ROOT / "tests" / f"requirements-{name}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9._-]+)==([^\s;]+)", text, re.MULTILINE))


def test_each_list_of_pins_agrees_with_the_one_it_builds_on() -> None:
    run, built, test = (read_pins(name) for name in PINS)

    assert run.items() <= built.items() <= test.items()


@pytest.mark.parametrize("name", [*PINS, "fuzz", "openai1", "langchain", "frameworks"])
def test_every_pin_has_a_hash(name: str) -> None:
    text = (ROOT / "tests" / f"requirements-{name}.txt").read_text()
    entries = re.split(
        r"^(?=[a-z0-9])", re.sub(r"^#.*\n", "", text, flags=re.MULTILINE), flags=re.M
    )

    assert [each.split()[0] for each in entries if each and "--hash=sha256:" not in each] == []


def test_everything_the_project_asks_for_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    def names(wanted: list[str]) -> set[str]:
        return {re.split(r"[^a-z0-9._-]", each)[0] for each in wanted}

    assert names(project["project"]["dependencies"]) == read_pins("run").keys()
    assert names(project["dependency-groups"]["build"]) <= read_pins("build").keys()
    for group in project["dependency-groups"].values():
        assert names(group) <= read_pins("test").keys()


# -- an old or bare Python, and no network


def test_no_syntax_of_build_is_too_new_for_its_own_refusal() -> None:
    ast.parse((ROOT / "build.py").read_text(), feature_version=(3, 7))


def test_an_old_python_is_told_which_one_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))

    with pytest.raises(SystemExit, match=r"build\.py: needs Python 3\.11 or newer, this is 3\.9\."):
        runpy.run_path(str(ROOT / "build.py"))


def without(*missing: str) -> Any:
    real = importlib.util.find_spec
    return lambda name: None if name in missing else real(name)


@pytest.mark.parametrize("missing", [("venv",), ("ensurepip", "pip")])
def test_a_python_without_venv_is_told_what_to_install(
    missing: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", without(*missing))

    with pytest.raises(SystemExit, match="apt-get install python3-venv"):
        build._make_environment(tmp_path / "x", tmp_path / "x" / "bin" / "python")


@slow
def test_without_ensurepip_the_pip_at_hand_fills_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian's python3-pip without python3-venv: Python and pip, and still enough."""
    monkeypatch.setattr(importlib.util, "find_spec", without("ensurepip"))
    target = tmp_path / "x" / "bin" / "python"

    pip = build._make_environment(tmp_path / "x", target)
    done = subprocess.run([*pip, "--version"], capture_output=True, text=True, check=True)

    assert target.exists()
    assert not list((tmp_path / "x").glob("lib/*/site-packages/pip"))
    assert pip[-2:] == ["--python", str(target)]
    assert done.stdout.startswith("pip ")


@slow
def test_a_pip_that_reaches_nothing_is_explained(
    python: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (tmp_path / "pins.txt").write_text("h11==0.16.0 --hash=sha256:" + "0" * 64)
    command = [str(python), "-m", "pip", "download", "--no-deps", "-r", str(tmp_path / "pins.txt")]

    with pytest.raises(SystemExit, match="pip could not install the pinned packages"):
        build._pip([*command, "-d", str(tmp_path), "--isolated", "--no-index"])

    assert "No matching distribution found for h11" in capfd.readouterr().err


# -- doing nothing when nothing changed


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A build.py whose folders are new and whose expensive parts only say that they ran."""
    ran: list[str] = []

    def make(folder: Path, python: Path) -> list[str]:
        ran.append(f"make {folder.name}")
        python.parent.mkdir(parents=True)
        python.write_text("")
        return ["pip"]

    def pack(source: Path, wheels: object, python: Path, target: Path) -> None:
        ran.append("pack")
        target.write_text("")
        build.bill_of(target).write_text("")

    (tmp_path / "tests").mkdir()
    for name in PINS:
        (tmp_path / "tests" / f"requirements-{name}.txt").write_text(f"{name}==1")
    (tmp_path / "agentstate").mkdir()
    (tmp_path / "agentstate" / "a.py").write_text("")
    for name, value in {
        "ROOT": tmp_path, "WORK": tmp_path / ".build", "WHEELS": tmp_path / ".build" / "wheels",
        "ARCHIVE": tmp_path / "dist" / "a.pyz", "SOURCES": ("agentstate",), "pack": pack,
        "_make_environment": make, "_pip": lambda command: ran.append(f"pip {command[-1][-7:-4]}"),
    }.items():  # fmt: skip
        monkeypatch.setattr(build, name, value)
    return ran


def test_what_has_not_changed_is_not_made_again(workshop: list[str]) -> None:
    build.build()
    first = workshop[:]
    build.build()

    assert first == ["make build", "pip ild", "pip run", "pack"]
    assert workshop == first


def test_a_changed_source_is_packed_again_and_nothing_else(
    workshop: list[str], tmp_path: Path
) -> None:
    build.build()
    workshop.clear()
    (tmp_path / "agentstate" / "a.py").write_text("x = 1")
    build.build()
    (tmp_path / "agentstate" / "below").mkdir()
    (tmp_path / "agentstate" / "a.py").rename(tmp_path / "agentstate" / "below" / "a.py")
    build.build()
    (tmp_path / "dist" / "a.pyz").unlink()
    build.build()

    assert workshop == ["pack", "pack", "pack"]


def test_changed_pins_make_the_environment_again(workshop: list[str], tmp_path: Path) -> None:
    build.build()
    workshop.clear()
    (tmp_path / "tests" / "requirements-build.txt").write_text("build==2")
    build.build()

    assert workshop == ["make build", "pip ild"]


def test_an_environment_that_was_not_finished_is_made_again(
    workshop: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> None:
        raise SystemExit("no network")

    with monkeypatch.context() as patch:
        patch.setattr(build, "_pip", fail)
        with pytest.raises(SystemExit):
            build.build()
    build.build()

    assert workshop == ["make build", "make build", "pip ild", "pip run", "pack"]


# -- verbs


def test_an_unknown_verb_is_refused_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as left:
        build.main(["fly"])

    assert left.value.code == 2
    assert "run | test | check | bench | fuzz" in capsys.readouterr().err


def test_arguments_of_a_verb_are_passed_on_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    passed: list[list[str]] = []

    def note(arguments: list[str]) -> int:
        passed.append(arguments)
        return 7

    monkeypatch.setitem(build.VERBS, "test", note)

    assert build.main(["test", "-k", "x", "--help"]) == 7
    assert passed == [["-k", "x", "--help"]]


# -- peers

PEER = {
    "version": "1.0", "pip": ["other==1.0"], "command": ["{bin}/other", "{home}/x", "{port}"],
    "path": "/v1", "headers": [], "environment": {}, "files": {},
}  # fmt: skip


def test_peers_are_installed_once_and_the_bench_is_told_of_them(
    workshop: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[list[str]] = []

    def note(arguments: list[str]) -> int:
        ran.append(list(arguments))
        return 3

    monkeypatch.setattr(build, "_run_archive", note)
    shutil.copy(ROOT / "tests" / "peers.toml", tmp_path / "tests")
    for _ in range(2):
        assert build.main(["bench", "--against", "litellm", "--quick", "calls"]) == 3

    file = build.WORK / "peers.json"
    assert ran == [["bench", "--quick", "calls", "--beside", str(file)]] * 2
    assert len([each for each in workshop if each.startswith("make")]) == 1
    [row] = json.loads(file.read_text())
    assert row["name"] == "litellm"
    assert row["command"][0] == str(build.WORK / "peer-litellm" / build._BIN / "litellm")


def test_without_peers_the_bench_gets_its_arguments_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[list[str]] = []
    monkeypatch.setattr(build, "_run_archive", lambda arguments: ran.append(list(arguments)) or 0)

    build.main(["bench", "--json", "--help"])

    assert ran == [["bench", "--json", "--help"]]


def test_a_peer_that_nobody_knows_is_refused_with_those_that_are() -> None:
    with pytest.raises(SystemExit, match="litellm, portkey; found 'other'"):
        build.main(["bench", "--against", "litellm,other"])


def test_a_peer_of_npm_needs_npm(workshop: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build.shutil, "which", lambda _: None)
    with pytest.raises(SystemExit, match="other is installed by npm"):
        build.install_peer("other", {"npm": ["other@1.0"]})


def test_the_places_of_a_peer_are_filled_in_and_those_of_its_start_are_left() -> None:
    row = build.peer_row("other", PEER, Path("/h"))

    assert row["command"] == [f"/h/{build._BIN}/other", "/h/x", "{port}"]
    assert "pip" not in row


def test_every_peer_is_pinned_and_can_be_read_by_the_bench(tmp_path: Path) -> None:
    known = tomllib.loads((ROOT / "tests" / "peers.toml").read_text("utf-8"))
    rows = [build.peer_row(name, peer, tmp_path) for name, peer in known.items()]
    (tmp_path / "peers.json").write_text(json.dumps(rows))

    assert [peer.name for peer in read_peers(tmp_path / "peers.json")] == list(known)
    for peer in known.values():
        [package] = peer.get("pip") or peer["npm"]
        assert package.endswith(("==" + peer["version"], "@" + peer["version"]))


FIGURES = "<!-- bench -->\n{}<!-- /bench -->"


def test_what_the_bench_prints_takes_the_place_of_the_old_figures() -> None:
    text = f"before\n{FIGURES.format('old')}\nafter"

    new = build.with_figures(text, "abc1234", "a table\n")

    block = "```text\ncommit        abc1234\na table\n```\n"
    assert new == f"before\n{FIGURES.format(block)}\nafter"
    assert build.with_figures(new, "abc1234", "a table\n") == new


def test_a_readme_with_no_place_for_figures_is_named() -> None:
    with pytest.raises(SystemExit, match=r"README\.md should have <!-- bench -->"):
        build.with_figures("# Title", "abc1234", "a table\n")


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a README, and an archive that prints what it was asked."""
    (tmp_path / "README.md").write_text(FIGURES.format("old"))
    archive = tmp_path / "archive.py"
    archive.write_text("import sys; print(sys.argv[1:]); sys.exit('fail' in sys.argv)")
    for words in (["init", "-q"], ["add", "README.md"], ["commit", "-qm", "first"]):
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "build", lambda: archive)
    return tmp_path


def test_figures_go_into_readme_with_their_commit(checkout: Path) -> None:
    assert build.main(["bench", "--readme", "--quick"]) == 0

    text = (checkout / "README.md").read_text()
    assert re.search(r"^commit        [0-9a-f]{7,}$", text, re.MULTILINE)
    assert "['bench', '--quick']" in text
    build.main(["bench", "--readme"])
    assert " and changes\n" in (checkout / "README.md").read_text()


def test_a_bench_that_failed_leaves_readme_as_it_is(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert build.main(["bench", "--readme", "fail"]) == 1

    assert (checkout / "README.md").read_text() == FIGURES.format("old")
    assert "['bench', 'fail']" in capsys.readouterr().out


def test_help_is_the_manual(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        build.main(["--help"])

    assert left.value.code == 0
    assert "python3 build.py run [ARGS]" in capsys.readouterr().out
