#!/usr/bin/env python3
"""The one tool: builds, starts, tests and checks. Needs Python 3.11 with pip, and nothing else.

    python3 build.py                  build dist/agentstate.pyz
    python3 build.py run [ARGS]       build it and start it: `agentstate ARGS`
    python3 build.py test [ARGS]      run the tests: `pytest ARGS`
    python3 build.py check            lint, format, types, direction of imports, house style
    python3 build.py bench [ARGS]     build it and run `agentstate bench ARGS`; with --against
                                      litellm,portkey beside them, which it installs; with
                                      --readme what it prints becomes README's section
    python3 build.py fuzz [ARGS]      fuzz what takes bytes from outside: [TARGET ...] [--seconds N]

What it needs it makes under .build/: virtual environments with the exact versions, checked by hash,
of tests/requirements-*.txt. What has not changed is not made again. The same sources give the same
.pyz, byte for byte, whenever and wherever they are built. Beside it lies its bill of materials,
agentstate.cdx.json (CycloneDX 1.6): what is in it, with versions, licences and hashes.
"""

# No syntax in this file is newer than Python 3.7, and what runs before the check of the version is
# older still: an old Python gets a sentence and no SyntaxError. tests/test_build.py holds this.
import argparse
import ast
import hashlib
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tokenize
import uuid
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from email.parser import BytesParser
from pathlib import Path
from typing import Any, NoReturn

if sys.version_info < (3, 11):  # noqa: UP036 - an old Python is what this is for
    sys.exit(
        "build.py: needs Python 3.11 or newer, this is {}.{}. Start it with another one, as in: "
        "python3.11 build.py".format(*sys.version_info[:2])
    )

ROOT = Path(__file__).resolve().parent
ARCHIVE = ROOT / "dist" / "agentstate.pyz"
WORK = ROOT / ".build"
WHEELS = WORK / "wheels"

SHEBANG = "/usr/bin/env python3"
ENTRY_POINT = "agentstate.__main__:main"
ARCHIVE_BYTES_MAX = 1_000_000  # what is copied by hand into containers stays small
EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest moment a zip can name; every file in it gets this
EPOCH_S = "315532800"  # the same, for tools that read SOURCE_DATE_EPOCH
FILE_MODE = 0o100644 << 16  # of every file in the archive, whatever the umask of the builder was
SOURCES = ("agentstate", "web", "pyproject.toml", "README.md", "LICENSE")
_BIN = "Scripts" if os.name == "nt" else "bin"  # of an environment
_PYTHON = "python.exe" if os.name == "nt" else "python"
LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", ".*")

# Environments by name, with the lists of pinned packages they hold.
ENVIRONMENTS = {
    "build": "requirements-build.txt",
    "test": "requirements-test.txt",
    "fuzz": "requirements-fuzz.txt",
}


def main(argv: Sequence[str]) -> int:
    """Do what the first argument says and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="build.py",
        usage="build.py [run | test | check | bench | fuzz] [ARGS]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("verb", nargs="?", choices=sorted(VERBS), help=argparse.SUPPRESS)
    verb = parser.parse_args(argv[:1]).verb
    try:
        return VERBS[verb](argv[1:]) if verb else _print_built()
    except KeyboardInterrupt:
        return 130


def build() -> Path:
    """Build the .pyz if a source has changed since it was built; return where it is."""
    with _lock():
        python = environment("build")
        wheels = _wheels(python)
        key = _digest([ROOT / name for name in SOURCES] + [Path(__file__), *wheels])
        stamp = WORK / "archive.stamp"
        is_there = ARCHIVE.exists() and bill_of(ARCHIVE).exists()
        if not _is_fresh(stamp, key) or not is_there:
            ARCHIVE.parent.mkdir(exist_ok=True)
            pack(ROOT, wheels, python, ARCHIVE)
            stamp.write_text(key)
    return ARCHIVE


def pack(source: Path, wheels: Sequence[Path], python: Path, target: Path) -> None:
    """Make `target` from the sources at `source`, the wheels it needs, and shiv.

    `python` is the interpreter of an environment with setuptools and shiv. Reproducible: nothing
    that differs between two builders (times, order, modes, folders, scripts of pip) gets in. Its
    bill of materials is written beside it.
    """
    with tempfile.TemporaryDirectory(prefix="agentstate-build-") as name:
        folder = Path(name)
        site, packed = folder / "site-packages", folder / "packed.pyz"
        for wheel in (*wheels, make_wheel(source, python, folder)):
            with zipfile.ZipFile(wheel) as opened:
                opened.extractall(site)
        trim(site)
        _run(
            [
                str(python), "-m", "shiv", "--reproducible", "--compile-pyc", "--compressed",
                "--site-packages", str(site), "--entry-point", ENTRY_POINT,
                "--python", SHEBANG, "--output-file", str(packed),
            ],
            "shiv could not make the archive",
            env=_fixed_environment(),
        )  # fmt: skip
        _normalise(packed, source / "agentstate" / "unpack.py", folder / "normal.pyz")
        size = (folder / "normal.pyz").stat().st_size
        if size > ARCHIVE_BYTES_MAX:
            _fail(f"the archive has {size} bytes; {ARCHIVE_BYTES_MAX} are the most it may have")
        shutil.move(str(folder / "normal.pyz"), str(target))
    bill_of(target).write_text(write_bill(target, wheels), encoding="utf-8")


def bill_of(archive: Path) -> Path:
    """Return where the bill of materials of an archive lies."""
    return archive.with_suffix(".cdx.json")


def write_bill(archive: Path, wheels: Sequence[Path]) -> str:
    """Return what is in an archive as CycloneDX 1.6, read from the archive itself.

    A package has the hash of the wheel it came from, by which it can be found again; and one over
    its files as they are packed, which are shorter. The same archive gives the same text.
    """
    with zipfile.ZipFile(archive) as outer, outer.open("site-packages.zip") as inner:
        parts = [_bootstrap(outer)]
        with zipfile.ZipFile(inner) as opened:
            told = sorted(name for name in opened.namelist() if name.endswith("-info/METADATA"))
            parts += [_package(opened, name) for name in told]
    by_name = {part["name"]: part for part in parts}
    for wheel in wheels:
        by_name[wheel.name.partition("-")[0]]["hashes"] = _sha256(wheel.read_bytes())
    whole = by_name.pop("agentstate")
    whole.update(type="application", hashes=_sha256(archive.read_bytes()))
    needed = [by_name[name] for name in sorted(by_name)]
    said = whole["hashes"][0]["content"]
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        # Of the archive, not of the moment.
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, f'sha256:{said}')}",
        "version": 1,
        "metadata": {"component": whole},
        "components": needed,
        "dependencies": [
            {"ref": whole["bom-ref"], "dependsOn": [part["bom-ref"] for part in needed]}
        ],
    }
    return json.dumps(bill, indent=2) + "\n"


def _bootstrap(outer: zipfile.ZipFile) -> dict[str, Any]:
    """Describe what of shiv unpacks the archive at its first start."""
    files = [name for name in outer.namelist() if name.startswith("_bootstrap/")]
    version = json.loads(outer.read("environment.json"))["shiv_version"]
    return _part(outer, "shiv", version, "BSD-2-Clause", files)


def _package(opened: zipfile.ZipFile, metadata: str) -> dict[str, Any]:
    """Describe an installed package from its METADATA."""
    said = BytesParser().parsebytes(opened.read(metadata))
    folders = (f"site-packages/{said['Name']}/", metadata.rpartition("/")[0] + "/")
    files = [name for name in opened.namelist() if name.startswith(folders)]
    licence = said["License-Expression"] or said["License"]
    return _part(opened, said["Name"], said["Version"], licence, files)


def _part(
    opened: zipfile.ZipFile, name: str, version: str, licence: str, files: Sequence[str]
) -> dict[str, Any]:
    state = hashlib.sha256()
    for file in sorted(files):
        state.update(hashlib.sha256(opened.read(file)).digest() + file.encode() + b"\0")
    part = {
        "type": "library",
        "bom-ref": f"{name}@{version}",
        "name": name,
        "version": version,
        "licenses": [{"license": {"id": licence}}],
        "properties": [{"name": "agentstate:packed-sha256", "value": state.hexdigest()}],
    }
    return part if name == "agentstate" else {**part, "purl": f"pkg:pypi/{name}@{version}"}


def _sha256(content: bytes) -> list[dict[str, str]]:
    return [{"alg": "SHA-256", "content": hashlib.sha256(content).hexdigest()}]


def trim(site: Path) -> None:
    """Take out of unpacked wheels what is for installers and for readers: half of the archive."""
    slimmers = {".py": slim, ".js": slim_script, ".css": slim_script, ".pem": slim_roots}
    for path in site.rglob("*"):
        if path.suffix in slimmers:
            text = slimmers[path.suffix](path.read_text(encoding="utf-8"))
            path.write_text(text, encoding="utf-8")
    for folder in site.glob("*.dist-info"):
        for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
            (folder / name).unlink(missing_ok=True)
        metadata = folder / "METADATA"
        head, _, _ = metadata.read_text(encoding="utf-8").partition("\n\n")
        metadata.write_text(head + "\n", encoding="utf-8")


def slim(text: str) -> str:
    """Return a module without comments and docstrings: a third of what the archive would weigh.

    Lines keep their numbers, so that what a traceback says is true of the sources.
    """
    lines = text.split("\n")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            said = node.body[0]
            assert said.end_lineno is not None, "what was parsed has an end"
            # Columns are counted in bytes.
            before = lines[said.lineno - 1].encode()[: said.col_offset].decode()
            after = lines[said.end_lineno - 1].encode()[said.end_col_offset :].decode()
            lines[said.lineno - 1] = f'{before}""{after}'
            lines[said.lineno : said.end_lineno] = [""] * (said.end_lineno - said.lineno)
    return "\n".join(lines)


def slim_script(text: str) -> str:
    """Return a script or a style sheet without the comments that have lines of their own; lines
    keep their numbers."""
    kept: list[str] = []
    is_inside = False
    for line in text.split("\n"):
        words = line.strip()
        is_comment = is_inside or words.startswith(("//", "/*"))
        if is_inside or words.startswith("/*"):
            is_inside = not words.endswith("*/")
        kept.append("" if is_comment else line)
    return "\n".join(kept)


def slim_roots(text: str) -> str:
    """Return certificates without what is said of each."""
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))


def make_wheel(source: Path, python: Path, folder: Path) -> Path:
    """Make a wheel from a clean copy of the sources; return where it is.

    A copy, since setuptools leaves folders beside what it builds, and packs what it once left.
    """
    copy, wheels = folder / "source", folder / "wheel"
    copy.mkdir()
    wheels.mkdir()
    for name in SOURCES:
        if (source / name).is_dir():
            shutil.copytree(source / name, copy / name, ignore=LEFT_OUT)
        elif (source / name).exists():
            shutil.copyfile(source / name, copy / name)
    _run(
        [str(python), "-c", _WHEEL_CODE, str(wheels)],
        "setuptools could not make the wheel",
        cwd=copy,
        env=_fixed_environment(),
    )
    (wheel,) = wheels.glob("*.whl")
    return wheel


def environment(name: str) -> Path:
    """Make the environment `name` if it is missing or out of date; return its interpreter."""
    folder = WORK / name
    python = folder / _BIN / _PYTHON
    pins = ROOT / "tests" / ENVIRONMENTS[name]
    # A moved checkout or another Python makes the paths inside an environment wrong.
    key = _digest([pins], sys.version, sys.base_prefix, str(ROOT))
    stamp = folder / "stamp"
    if _is_fresh(stamp, key) and python.exists():
        return python
    print(f"build.py: making .build/{name} with the tools of tests/{pins.name} ...", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    pip = _make_environment(folder, python)
    _pip([*pip, "install", "--require-hashes", "-r", str(pins)])
    stamp.write_text(key)
    return python


def _make_environment(folder: Path, python: Path) -> list[str]:
    """Make an empty virtual environment; return the command of a pip that installs into it."""
    if importlib.util.find_spec("venv") is None:
        _fail(_NO_VENV)
    has_own_pip = importlib.util.find_spec("ensurepip") is not None
    if not has_own_pip and importlib.util.find_spec("pip") is None:
        _fail(_NO_VENV)
    flags = ["--clear"] if has_own_pip else ["--clear", "--without-pip"]
    _run([sys.executable, "-m", "venv", *flags, str(folder)], _NO_VENV)
    if has_own_pip:
        return [str(python), "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", str(python)]


def _wheels(python: Path) -> list[Path]:
    """Fetch the wheels that go into the .pyz, once; return where they are."""
    pins = ROOT / "tests" / "requirements-run.txt"
    key, stamp = _digest([pins]), WHEELS / "stamp"
    if not _is_fresh(stamp, key):
        shutil.rmtree(WHEELS, ignore_errors=True)
        WHEELS.mkdir(parents=True)
        flags = ["--no-deps", "--only-binary", ":all:", "--require-hashes"]
        _pip([str(python), "-m", "pip", "download", *flags, "-d", str(WHEELS), "-r", str(pins)])
        stamp.write_text(key)
    return sorted(WHEELS.glob("*.whl"))


def _pip(command: Sequence[str]) -> None:
    quiet = ["--quiet", "--quiet", "--disable-pip-version-check", "--no-input"]
    _run([*command, *quiet], _NO_PACKAGES)


def _normalise(packed: Path, first_code: Path, target: Path) -> None:
    """Copy the archive with one order, time and mode for all, and our own first code in it.

    The packages go into one entry, a zip that is not compressed: what is alike in two modules is
    then written once, which saves a fifth.
    """
    inner = io.BytesIO()
    with zipfile.ZipFile(packed) as opened, target.open("wb") as file:
        names = sorted(opened.namelist())
        file.write(b"#!" + SHEBANG.encode() + b"\n")
        with zipfile.ZipFile(inner, "w", zipfile.ZIP_STORED) as made:
            for name in names:
                if name.startswith("site-packages/"):
                    made.writestr(_entry(name), opened.read(name))
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as made:
            for name in names:
                if not name.startswith("site-packages/"):
                    code = first_code.read_bytes() if name == "__main__.py" else opened.read(name)
                    made.writestr(_entry(name), code, zipfile.ZIP_DEFLATED)
            made.writestr(_entry("site-packages.zip"), inner.getvalue(), zipfile.ZIP_DEFLATED)
    target.chmod(0o755)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, EPOCH)
    entry.create_system = 3  # Unix, wherever it was built
    entry.external_attr = FILE_MODE
    return entry


def _run_archive(arguments: Sequence[str]) -> int:
    command = [sys.executable, str(build()), *arguments]
    if os.name == "nt":
        return subprocess.call(command)
    os.execv(sys.executable, command)  # so that signals reach the server itself


def _run_bench(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, prog="build.py bench")
    parser.add_argument("--against", metavar="NAMES", default="")
    parser.add_argument("--readme", action="store_true")
    asked, others = parser.parse_known_args(arguments)
    names = [name for name in asked.against.split(",") if name]
    if names:
        others += ["--beside", str(write_peers(names))]
    if not asked.readme:
        return _run_archive(["bench", *others])
    archive = build()
    commit = read_commit()  # before the run: afterwards README differs
    done = subprocess.run(
        [sys.executable, str(archive), "bench", *others], stdout=subprocess.PIPE, check=False
    )
    if done.returncode == 0:
        readme = ROOT / "README.md"
        text = readme.read_text("utf-8")
        readme.write_text(with_figures(text, commit, done.stdout.decode()), "utf-8")
    else:
        sys.stdout.write(done.stdout.decode())
    return done.returncode


def with_figures(text: str, commit: str, printed: str) -> str:
    """Return README with what the bench printed as its section of figures. Pure."""
    start, end = "<!-- bench -->\n", "<!-- /bench -->"
    before, found, rest = text.partition(start)
    _, also_found, after = rest.partition(end)
    if not found or not also_found:
        _fail(f"README.md should have {start.strip()} and {end} around its figures")
    return f"{before}{start}```text\ncommit        {commit}\n{printed}```\n{end}{after}"


def read_commit() -> str:
    """Return the commit of the checkout, and whether there are changes on top of it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
        if done.returncode != 0:
            _fail("figures go into README with their commit, and this is no checkout of git")
        return done.stdout.decode().strip()

    has_changes = git("status", "--porcelain", "--untracked-files=no") != ""
    return git("rev-parse", "--short", "HEAD") + (" and changes" if has_changes else "")


def write_peers(names: Sequence[str]) -> Path:
    """Install peers; return the file that describes them for `bench --beside`."""
    import tomllib  # not at the top: no Python before 3.11 has it, and those get a sentence

    known = tomllib.loads((ROOT / "tests" / "peers.toml").read_text("utf-8"))
    for name in names:
        if name not in known:
            _fail(f"--against takes names of tests/peers.toml: {', '.join(known)}; found {name!r}")
    rows = []
    with _lock():
        for name in names:
            home = install_peer(name, known[name])
            rows.append(peer_row(name, known[name], home))
    file = WORK / "peers.json"
    file.write_text(json.dumps(rows, indent=1))
    return file


def peer_row(name: str, peer: dict[str, Any], home: Path) -> dict[str, Any]:
    """Return what `bench --beside` reads about a peer that is installed in `home`. Pure."""
    places = {"{home}": str(home), "{bin}": str(home / _BIN)}
    row = {key: value for key, value in peer.items() if key not in ("pip", "npm")}
    for place, path in places.items():
        row["command"] = [word.replace(place, path) for word in row["command"]]
    return {"name": name, **row}


def install_peer(name: str, peer: dict[str, Any]) -> Path:
    """Install a peer into an environment of its own, once; return where that is."""
    home = WORK / f"peer-{name}"
    packages = peer.get("pip") or peer["npm"]
    key, stamp = _digest([], sys.version, str(ROOT), *packages), home / "stamp"
    if _is_fresh(stamp, key):
        return home
    print(f"build.py: installing {' '.join(packages)} into .build/{home.name} ...", flush=True)
    shutil.rmtree(home, ignore_errors=True)
    if "pip" in peer:
        python = home / _BIN / _PYTHON
        _pip([*_make_environment(home, python), "install", *packages])
    else:
        npm = shutil.which("npm")
        if npm is None:
            _fail(f"{name} is installed by npm, which is not here")
        home.mkdir(parents=True)
        flags = ["--prefix", str(home), "--no-audit", "--no-fund", "--silent"]
        _run([npm, "install", *flags, *packages], f"npm could not install {' '.join(packages)}")
    stamp.write_text(key)
    return home


def _run_tests(arguments: Sequence[str]) -> int:
    with _lock():
        python = environment("test")
    return subprocess.call([str(python), "-m", "pytest", *arguments], cwd=str(ROOT))


def _run_fuzzing(arguments: Sequence[str]) -> int:
    with _lock():
        python = environment("fuzz")
    return subprocess.call([str(python), "-m", "tests.fuzz.run", *arguments], cwd=str(ROOT))


def _run_checks(arguments: Sequence[str]) -> int:
    if arguments:
        _fail("check takes no arguments")
    with _lock():
        python = str(environment("test"))
    style = ["tests/test_floors.py", "tests/test_tidy.py"]
    checks: dict[str, list[str]] = {
        "lint": [python, "-m", "ruff", "check", "."],
        "format": [python, "-m", "ruff", "format", "--check", "."],
        "types": [python, "-m", "mypy", "agentstate", "build.py"],
        "style": [python, "-m", "pytest", *style],
    }
    failed = []
    for name, command in checks.items():
        print(f"-- {name}", flush=True)
        if subprocess.call(command, cwd=str(ROOT)) != 0:
            failed.append(name)
    print(f"build.py: failed: {', '.join(failed)}" if failed else "build.py: all checks passed")
    return 1 if failed else 0


def _print_built() -> int:
    path = build()
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    print(f"{path.relative_to(ROOT)}  {path.stat().st_size} bytes  sha256 {digest}")
    return 0


VERBS: dict[str, Callable[[Sequence[str]], int]] = {
    "run": _run_archive,
    "test": _run_tests,
    "check": _run_checks,
    "bench": _run_bench,
    "fuzz": _run_fuzzing,
}

_WHEEL_CODE = "import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1])"

_NO_VENV = (
    "this Python cannot make a virtual environment: its venv, ensurepip and pip are missing. On "
    "Debian or Ubuntu: apt-get install python3-venv"
)
_NO_PACKAGES = (
    "pip could not install the pinned packages; its own words are above. It needs to reach your "
    "package index (`pip config list` shows which one), or a folder of wheels named by "
    "PIP_FIND_LINKS, with PIP_NO_INDEX=1"
)


def _digest(paths: Sequence[Path], *texts: str) -> str:
    """Return a digest over texts and over the paths and contents of files and whole folders."""
    state = hashlib.sha256()
    for text in texts:
        state.update(text.encode() + b"\0")
    for path in paths:
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and "__pycache__" not in file.parts:
                name, content = file.relative_to(path.parent).as_posix(), file.read_bytes()
                state.update(b"%s\0%d\0" % (name.encode(), len(content)) + content)
    return state.hexdigest()


def _is_fresh(stamp: Path, key: str) -> bool:
    return stamp.exists() and stamp.read_text() == key


def _fixed_environment() -> dict[str, str]:
    return {**os.environ, "SOURCE_DATE_EPOCH": EPOCH_S, "PYTHONHASHSEED": "0"}


def _run(
    command: Sequence[str],
    problem: str,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> None:
    """Run a command; if it fails, show what it printed and stop with `problem`."""
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode != 0:
        sys.stderr.write(done.stdout.decode(errors="replace"))
        _fail(problem)


def _fail(problem: str) -> NoReturn:
    sys.exit(f"build.py: {problem}.")


@contextmanager
def _lock() -> Iterator[None]:
    """Let one build.py at a time change .build/; where the platform has no flock, trust."""
    WORK.mkdir(exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(WORK / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
