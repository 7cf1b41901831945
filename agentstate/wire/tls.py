"""What HTTPS is served with. What our own calls trust is in `dial.py`."""

from __future__ import annotations

import ssl

from agentstate.ground.errors import SettingError, shorten


def server_tls(certificate: str | None, key: str | None) -> ssl.SSLContext | None:
    """Return what HTTPS is served with; None = plain HTTP.

    Raises:
        SettingError: one of the two files is missing or cannot be used.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise SettingError("HTTPS needs both server.tls_cert and server.tls_key.")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (OSError, ValueError) as error:  # of ssl as well
        raise SettingError(
            f"HTTPS cannot be served with {shorten(certificate)!r} and {shorten(key)!r} "
            f"({shorten(str(error))}). Both must be PEM files, the key without a passphrase."
        ) from error
    return context
