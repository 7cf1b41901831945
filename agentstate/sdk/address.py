"""Where the proxy is, and under which path a client reaches it. Pure.

People write a base URL as the SDK wants it, with `/v1` at the end or without; a provider or a
session may be named in it. From that come the forms the clients want, and the management API's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

DEFAULT_BASE_URL = "http://localhost:8080/v1"

_ADDRESS = re.compile(
    r"(?P<url>https?://[^/?#]+(?:/[^?#]*?)??)(?P<place>(?:/[sp]/[^/?#]+)*)(?:/v1(?:beta)?)?/*"
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where the proxy is."""

    url: str  # without a slash at the end; the management API is below it
    place: str = ""  # what stands between it and /v1, as in /p/groq

    @property
    def base_url(self) -> str:
        """What OpenAI's clients take."""
        return f"{self.url}{self.place}/v1"

    @property
    def anthropic_base_url(self) -> str:
        """What Anthropic's clients take: they add /v1 themselves."""
        return f"{self.url}{self.place}"

    def with_session(self, session_id: str) -> Address:
        """Return the same with the session named in the URL.

        A header cannot hold every id: clients send ASCII only.
        """
        provider = re.sub(r"/s/[^/]+", "", self.place)
        return Address(self.url, f"/s/{quote(session_id, safe='')}{provider}")


def parse_address(base_url: str) -> Address:
    """Read a base URL as people write it.

    Raises:
        ValueError: it is no http or https URL, or has a query.
    """
    found = _ADDRESS.fullmatch(base_url.strip())
    if found is None:
        raise ValueError(
            f"base_url must be the proxy's URL, such as {DEFAULT_BASE_URL}; found {base_url!r}."
        )
    return Address(found["url"].rstrip("/"), found["place"])
