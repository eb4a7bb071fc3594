"""Which content an image has, known without reading it again: digests by the version of the file that holds it.

A file is known by its stamp (`layerwise.data.cache_folder`). A digest is stored only where that was the same before and
after the file was read, and where the last change was so long ago that another one would have another time. Files that
could not be read are never stored.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from layerwise.data.cache_folder import SETTLED, stamp

_WAIT = 60.0
"""Seconds that a process waits for others that write."""


@dataclass(frozen=True, slots=True)
class FileVersion:
    """What differs whenever the content in question does: where it lies, its `stamp`, and when that changed last, in
    nanoseconds since 1970."""

    name: str
    stamp: str
    changed: int

    @classmethod
    def of(cls, file: Path) -> FileVersion | None:
        """The version of a file; `None` where there is none to be seen."""
        try:
            path, *status = stamp(file)
        except OSError:
            return None
        # A path may hold bytes that are no Unicode, which a database does not take.
        name = os.fsencode(path).decode(errors="backslashreplace")
        return cls(name, " ".join(map(str, status)), max(status[-2:]))

    @classmethod
    def of_all(cls, files: Iterable[Path]) -> FileVersion | None:
        """The version of several files as one; `None` where there are none, or one cannot be seen."""
        versions = [cls.of(file) for file in files]
        known = [version for version in versions if version is not None]
        if not known or len(known) < len(versions):
            return None
        names, stamps = ("|".join(getattr(each, name) for each in known) for name in ("name", "stamp"))
        return cls(names, stamps, max(each.changed for each in known))

    def part(self, name: str) -> FileVersion:
        """The version of a part of the file."""
        return FileVersion(f"{self.name}#{name}", self.stamp, self.changed)

    @property
    def settled(self) -> bool:
        """Whether a change from now on shows."""
        return time.time_ns() - self.changed >= SETTLED


Version = Callable[[], FileVersion | None]
"""The version of a content as it is now."""


class ContentDigests:
    """Digests of contents in the database `path`; nothing is known, or kept, where it cannot be read or written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def known(self, versions: Sequence[FileVersion | None]) -> list[bytes | None]:
        """The digest of each version; `None` where it is not stored."""
        digests: list[bytes | None] = [None] * len(versions)
        with suppress(sqlite3.Error, OSError), self._open() as database:
            for at, version in enumerate(versions):
                if version is not None:
                    wanted = (version.name, version.stamp)
                    row = database.execute("SELECT digest FROM digests WHERE name = ? AND stamp = ?", wanted).fetchone()
                    digests[at] = row and row[0]
        return digests

    def add(self, rows: Iterable[tuple[FileVersion, bytes]]) -> None:
        """Store digests, in the place of those of earlier versions."""
        values = [(version.name, version.stamp, digest) for version, digest in rows]
        with suppress(sqlite3.Error, OSError), self._open() as database:
            database.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?)", values)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with closing(self._connected()) as database, database:
                yield database
        except sqlite3.DatabaseError as error:
            # A file that is no database knows nothing; one that others write just now is left as it is.
            if not isinstance(error, sqlite3.OperationalError):
                self.path.unlink(missing_ok=True)
            raise

    def _connected(self) -> sqlite3.Connection:
        database = sqlite3.connect(self.path, timeout=_WAIT)
        try:
            database.execute(
                "CREATE TABLE IF NOT EXISTS digests (name TEXT PRIMARY KEY, stamp TEXT NOT NULL, digest BLOB NOT NULL) "
                "WITHOUT ROWID"
            )
        except sqlite3.Error:
            database.close()
            raise
        return database
