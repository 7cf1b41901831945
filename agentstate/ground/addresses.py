"""Which names and addresses are this machine, and what is a URL. Pure; resolves nothing."""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit


@lru_cache(maxsize=64)  # each call of an agent asks it of the same Host header
def is_loopback(host: str) -> bool:
    """Say whether a host name or address, brackets or not, can only be this machine.

    Source: RFC 6761 section 6.3 for `localhost`, 127.0.0.0/8 and ::1 for addresses.
    """
    name = host.lower().strip("[]").rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def url_problem(text: str, *, takes_query: bool = False) -> str | None:
    """Say what keeps a text from being the http(s) URL of a service, None = nothing.

    No part of the text is repeated: it may be secret.
    """
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - the property raises where the port is no number
    except ValueError:  # its text may repeat a part of a password
        return "its host and port cannot be read"
    if parts.scheme not in ("http", "https"):
        return "it must begin with http:// or https://"
    if not parts.hostname:
        return "it names no host"
    if parts.username is not None:
        return "it holds a user or password; a key has a setting of its own"
    if parts.fragment or (parts.query and not takes_query):
        return "it holds a query or fragment"
    if not text.isascii() or any(sign <= " " for sign in text):
        return "it holds a character that no URL may"
    return None
