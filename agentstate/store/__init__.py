"""Where the record lives. One row per backend; the opener imports its driver inside.

`open_store` makes a store from the settings; the caller opens and closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from agentstate.ground.errors import SettingError, shorten
from agentstate.ground.settings import StoreSettings
from agentstate.store.base import Store

__all__ = ["STORES", "Store", "open_store"]


def _sqlite(settings: StoreSettings) -> Store:
    from agentstate.store.sqlite import SqliteStore

    return SqliteStore(settings.path, durability=settings.durability)


def _memory(settings: StoreSettings) -> Store:
    from agentstate.store.memory import MemoryStore

    return MemoryStore()


# By the scheme of `store.path`, as in "sqlite://agentstate.db"; a plain path is SQLite's.
STORES: Mapping[str, Callable[[StoreSettings], Store]] = {
    "sqlite": _sqlite,
    "memory": _memory,
}


def open_store(settings: StoreSettings) -> Store:
    """Return the store that `settings.path` names, not opened yet.

    Raises:
        SettingError: it names a kind of store there is not.
    """
    scheme, separator, rest = settings.path.partition("://")
    if not separator:
        return _sqlite(settings)
    if scheme not in STORES:
        raise SettingError(
            f"store.path names a store of the kind {shorten(scheme)!r}; there are "
            f"{' and '.join(STORES)}. For a file, write its path.",
            param="store.path",
        )
    return STORES[scheme](replace(settings, path=rest))
