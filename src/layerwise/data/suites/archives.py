"""Archives of tables, as EWoK is published: zip files, locked with a word so that no crawler reads them.

They are read in memory: nothing of them is written to the disk.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from layerwise.bounded import Unreadable, decoded, shortened, size_in_words, unpacked_bound
from layerwise.data.suites.records import FileRecord, kind_of, parse_records
from layerwise.errors import DataError


def archived(path: Path, password: str | None) -> Iterator[tuple[str, tuple[FileRecord, ...]]]:
    """The name and the rows of every table in the archive at `path`.

    Raises `DataError` for an archive that is damaged, stays locked, holds no table, or unpacks to far more than it is.
    """
    left = unpacked_bound(path.stat().st_size)
    with _opened(path) as archive:
        names = sorted(name for name in archive.namelist() if kind_of(name) and not name.endswith(".gz"))
        if not names:
            raise DataError(f"{path} holds no .jsonl, .csv or .tsv file; give an archive of minimal pairs")
        for name in names:
            content = _unlocked(archive, name, path, password, left)
            left -= len(content)
            try:
                lines = io.StringIO(decoded(content), newline="")
            except Unreadable as fault:
                raise DataError(f"{name} in {path} {fault}; fetch the archive again") from fault
            yield PurePosixPath(name).name, parse_records(lines, f"{path}:{name}", kind_of(name) or "")


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, OSError) as error:
        raise DataError(f"{path} is not a whole zip archive ({_reason(error)}); fetch it again") from error


def _unlocked(archive: zipfile.ZipFile, name: str, path: Path, password: str | None, most: int) -> bytes:
    """The content of a member of an archive, which may unpack to `most` bytes."""
    locked = bool(archive.getinfo(name).flag_bits & 0x1)
    if locked and password is None:
        raise DataError(f"{path} is locked: give the word that its authors published with it, --password WORD")
    try:
        with archive.open(name, pwd=password.encode() if password is not None else None) as file:
            content = file.read(most + 1)
    except NotImplementedError as error:  # a kind of RuntimeError
        raise DataError(f"{name} in {path} is packed in a way that Python does not read ({error})") from error
    except RuntimeError as error:
        raise DataError(f"{path} does not open with this --password ({error}); check its spelling") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{name} in {path} cannot be read ({_reason(error)}); fetch the archive again") from error
    if len(content) > most:
        raise DataError(
            f"{name} in {path} unpacks to more than {size_in_words(most)}, and the archive is far smaller: unpack it "
            "yourself, and give its tables"
        )
    return content


def _reason(error: Exception) -> str:
    return shortened(str(error)) or type(error).__name__
