"""What was made last, kept for who asks next: a page and the download behind it make it once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from cachetools import LRUCache

T = TypeVar("T")
"""Never None: that is how `get` says that there is nothing."""


class Recent(Generic[T]):
    """At most `most` values by key, those asked for last. For threads: two that miss at once both make it."""

    def __init__(self, most: int) -> None:
        self._kept: LRUCache[str, T] = LRUCache(most)
        self._lock = threading.Lock()  # LRUCache moves what is read to its end, and has no lock of its own

    def of(self, key: str, make: Callable[[], T]) -> T:
        """The key's value, made where it is not there; what `make` raises passes through and nothing is kept."""
        known = self.get(key)
        if known is not None:
            return known
        made = make()
        self.put(key, made)
        return made

    def get(self, key: str) -> T | None:
        """The key's value, where it is there."""
        with self._lock:
            return self._kept.get(key)

    def put(self, key: str, value: T) -> None:
        """Keep a value, and forget the one that nobody has asked for the longest where there are too many."""
        with self._lock:
            self._kept[key] = value
