"""Debian's nginx before a proxy, with its own defaults: what people put in front of it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

START_TIMEOUT_S = 10.0

_CONFIG = """
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ worker_connections 64; }}
http {{
  access_log off;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{upstream_port};
      proxy_http_version 1.1;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
    }}
  }}
}}
"""


class Nginx:
    """One nginx on a free port that passes everything on to another port here."""

    def __init__(self, folder: Path, upstream_port: int) -> None:
        path = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if path is None:
            pytest.skip("needs nginx")
        self._path = path
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        text = _CONFIG.format(folder=folder, port=self.port, upstream_port=upstream_port)
        self._config = folder / "nginx.conf"
        self._config.write_text(text, encoding="utf-8")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        command = [self._path, "-p", str(self._folder), "-c", str(self._config)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        until = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert time.monotonic() < until, "nginx does not listen"
                assert self._process.poll() is None, (self._folder / "error.log").read_text()
                time.sleep(0.02)
            else:
                return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        self._process.terminate()
        self._process.wait(10)
