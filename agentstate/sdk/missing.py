"""A package that is not installed, named with the line that brings it."""

from __future__ import annotations

import importlib
from types import ModuleType


class MissingPackage(ImportError):
    """A package of others is needed and is not installed here."""


def load(module: str, package: str, needed_for: str) -> ModuleType:
    """Import `module`, which needs `package` of others.

    Raises:
        MissingPackage: `package` is not installed; the message has the line that installs it.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Another name is a package that is broken, or a fault of ours: said as it is.
        if (error.name or "").partition(".")[0] != package:
            raise
        raise MissingPackage(
            f"{needed_for} needs the package {package}, which is not installed here. "
            f"Install it: pip install {package}",
            name=package,
        ) from error
