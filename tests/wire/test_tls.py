"""What HTTPS is served with."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from agentstate.ground.errors import SettingError
from agentstate.wire.tls import server_tls


def test_without_a_certificate_it_is_plain_http() -> None:
    assert server_tls(None, None) is None


@pytest.mark.parametrize(("certificate", "key"), [("c.pem", None), (None, "k.pem")])
def test_one_without_the_other_is_refused(certificate: str | None, key: str | None) -> None:
    with pytest.raises(SettingError, match="HTTPS needs both"):
        server_tls(certificate, key)


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="missing"):
        server_tls(str(tmp_path / "missing.pem"), "k")
    odd = tmp_path / "odd.pem"
    odd.write_text("nothing")
    with pytest.raises(SettingError, match="must be PEM files"):
        server_tls(str(odd), str(odd))


def test_a_certificate_and_its_key_make_a_context(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    issued = trustme.CA().issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "k.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "c.pem"))

    context = server_tls(str(tmp_path / "c.pem"), str(tmp_path / "k.pem"))

    assert isinstance(context, ssl.SSLContext)
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
