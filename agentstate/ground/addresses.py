"""Which names and addresses are this machine. Pure; resolves nothing."""

from __future__ import annotations

import ipaddress


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
