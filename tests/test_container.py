"""What README says of containers and systemd: its own lines, run and checked.

The container is played without Docker, in a mount namespace of its own: the whole file system is
read-only but for one volume; the process has a user id that no passwd knows, no capabilities and no
environment, so no HOME. It is started with the words of README's Dockerfile.
"""

from __future__ import annotations

import configparser
import http.client
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agentstate.ground.settings import ServerSettings
from tests.test_build import ROOT, archive

__all__ = ["archive"]  # the fixture

README = (ROOT / "README.md").read_text(encoding="utf-8")
UID = 54321  # nobody has it
AGENT = "an-agents-token-0123456789-abcdef"
TIMEOUT_S = 60.0
POLL_S = 0.05
BANNER = re.compile(r"^AgentState listening on http://0\.0\.0\.0:(\d+)", re.MULTILINE)

# What takes all a process may do from it, down to what anybody may.
AS_NOBODY = (
    "setpriv", "--reuid", str(UID), "--regid", "0", "--clear-groups", "--no-new-privs",
    "--inh-caps=-all", "--bounding-set=-all", "env", "-i",
)  # fmt: skip
# $1 the archive, $2 the volume; the rest is the command. Exits with 97 if it is no such place.
CONTAINER = """
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 none /mnt
mkdir /mnt/data
install -m 0444 "$1" /mnt/agentstate.pyz
mount --bind "$2" /mnt/data
for place in /tmp /var/tmp /dev/shm /run /mnt; do
    if mountpoint -q $place; then mount -o remount,bind,ro $place; fi
done
mount -o remount,bind,ro /
for place in / /tmp /var/tmp /dev/shm /run /mnt; do
    if touch $place/a-file 2>/dev/null; then exit 97; fi
done
shift 2
exec "$@"
"""


def block(language: str) -> str:
    """Return the one block of README in a language."""
    found = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    assert len(found) == 1, language
    return str(found[0])


def words(instruction: str) -> list[str]:
    """Return what an instruction of the Dockerfile says, in its JSON form."""
    found = re.search(rf"^{instruction} (\[.*\])$", block("dockerfile"), re.MULTILINE)
    assert found is not None, instruction
    return list(json.loads(found[1]))


def python_for_all() -> str:
    """Return an interpreter that any user can run, or skip the test."""
    for path in (sys.executable, "/usr/bin/python3"):
        command = [*AS_NOBODY, path, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return path
    pytest.skip("no Python 3.11 here that any user can run")


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    """The one place that can be written, as the Dockerfile makes it."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs Linux, root and setpriv")
    # Some sandboxes give a namespace and let nothing be mounted in it.
    probe = "mount --make-rprivate / && mount -t tmpfs none /mnt && mount -o remount,bind,ro /"
    command = ["unshare", "--mount", "sh", "-c", probe]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("needs a mount namespace of its own")
    owner = re.search(r"^RUN install -d -o (\d+) -g (\d+) -m (\d+) /data$", block("dockerfile"),
                      re.MULTILINE)  # fmt: skip
    assert owner is not None
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(int(owner[3], 8))
    os.chown(folder, int(owner[1]), int(owner[2]))
    return folder


class Container:
    """A server in it, or another verb."""

    def __init__(self, archive: Path, volume: Path, log: Path) -> None:
        self._archive = archive
        self._volume = volume
        self._log = log
        self._python = python_for_all()
        self.port = 0

    def start(self, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the archive with these arguments."""
        there = [each.replace("/data/", "/mnt/data/") for each in arguments]
        with self._log.open("wb") as log:
            return subprocess.Popen(
                ["unshare", "--mount", "sh", "-c", CONTAINER, "sh", str(self._archive),
                 str(self._volume), *AS_NOBODY, f"AGENTSTATE_SERVER_CLIENT_TOKENS={AGENT}",
                 self._python, "/mnt/agentstate.pyz", *there],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Run README's server, with the mock; it must end with 0 on SIGTERM."""
        program, entry, *rest = words("ENTRYPOINT")
        assert (program, entry) == ("python3", "/agentstate.pyz")
        process = self.start([*rest, *words("CMD"), "--mock", "--port", "0"])
        try:
            self.port = self._wait_for_banner(process)
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == 0, self.said()
        finally:
            process.kill()
            process.wait(TIMEOUT_S)

    def said(self) -> str:
        """Return what it printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        """Ask with the token it has made; return status, headers and body."""
        token = (self._volume / "agentstate.db.token").read_text(encoding="ascii").strip()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT_S)
        try:
            connection.request(
                method,
                path,
                None if body is None else json.dumps(body),
                {"x-agentstate-token": token, "content-type": "application/json", **headers},
            )
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def _wait_for_banner(self, process: subprocess.Popen[bytes]) -> int:
        until = time.monotonic() + TIMEOUT_S
        while (found := BANNER.search(self.said())) is None:
            assert process.poll() is None, f"it ended with {process.returncode}: {self.said()}"
            assert time.monotonic() < until, self.said()
            time.sleep(POLL_S)
        return int(found[1])


@pytest.mark.slow
def test_the_container_of_the_readme_serves_records_and_starts_again(
    archive: Path, volume: Path, tmp_path: Path
) -> None:
    container = Container(archive, volume, tmp_path / "said.log")
    asked = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hi"}]}
    caches: list[str | None] = []
    for _ in ("first", "again"):
        with container.serving():
            for path in ("/readyz", "/metrics", "/dashboard/", "/api/export/dataset"):
                assert container.ask("GET", path)[0] == 200, path
            status, headers, body = container.ask(
                "POST", "/s/run/v1/chat/completions", asked, **{"x-agentstate-token": AGENT}
            )
            assert status == 200, body
            caches.append(headers["x-agentstate-cache-hit"])

    assert caches == ["false", "true"]
    for file in volume.rglob("*"):
        found = file.lstat()
        assert (found.st_uid, stat.S_IMODE(found.st_mode) & 0o077) == (UID, 0) or (
            ".shiv" in file.parts
        ), file
    lines = [line for line in container.said().splitlines() if line.startswith("{")]
    assert any(json.loads(line).get("path") == "/s/run/v1/chat/completions" for line in lines)


@pytest.mark.slow
def test_a_verb_runs_beside_it_without_a_place_to_write(
    archive: Path, volume: Path, tmp_path: Path
) -> None:
    volume.chmod(0o500)
    process = Container(archive, volume, tmp_path / "verb.log").start(["policy", "--help"])

    assert process.wait(TIMEOUT_S) == 0, (tmp_path / "verb.log").read_text()


def test_the_probe_of_the_container_is_an_endpoint_that_needs_no_token() -> None:
    program, flag, code = words("HEALTHCHECK CMD")
    compile(code, "HEALTHCHECK", "exec")

    assert (program, flag) == ("python3", "-c")
    assert "127.0.0.1:8080/readyz" in code


def unit() -> configparser.ConfigParser:
    """Return the unit of README."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    parser.read_string(block("ini"))
    return parser


def test_the_unit_starts_reloads_and_waits_for_the_drain() -> None:
    service = unit()["Service"]
    python, archive_path, *arguments = service["ExecStart"].split()

    assert (python, Path(archive_path).name) == ("/usr/bin/python3", "agentstate.pyz")
    assert arguments[0] == "serve"
    database = arguments[arguments.index("--db") + 1]
    assert Path(database).parent == Path("/var/lib") / service["StateDirectory"]
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"
    assert float(service["TimeoutStopSec"]) > ServerSettings().drain_timeout_s + 10


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_takes_the_unit_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "agentstate.service"
    # What stands for programs and files of that machine may not be here.
    file.write_text(block("ini").replace("/usr/bin/python3", sys.executable), encoding="utf-8")
    done = subprocess.run(
        ["systemd-analyze", "verify", str(file)], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
