"""The token that an agent brings, where the server lets nobody in without one.

It goes with every call, of models and of the management API alike, in a header of its own: so the
key beside it can be the provider's. No message of ours holds it.
"""

from __future__ import annotations

import os

VARIABLE = "AGENTSTATE_TOKEN"
HEADER = "x-agentstate-token"
AUTO = "auto"  # what a server's environment may say: make one. It is none itself.


def find_token(given: str | None) -> str | None:
    """Return the token to bring; None = none.

    `given`: None = what the environment says, '' = none whatever it says.

    Raises:
        ValueError: it is one that no header can carry.
    """
    token = given
    if token is None:
        found = os.environ.get(VARIABLE, "").strip()
        token = "" if found == AUTO else found
    if not isinstance(token, str) or not (token.isascii() and token.isprintable()):
        name = VARIABLE if given is None else "token"
        raise ValueError(f"{name} must be a text of plain ASCII characters, and is not.")
    return token or None
