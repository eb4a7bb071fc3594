"""What lies in a folder of evaluation sets and below it, links to other folders included."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def below(folder: Path) -> Iterator[Path]:
    """Every file and folder below `folder`, in the order of their names.

    A folder that several links lead to is searched once, so a link to a folder above it ends. Folders that cannot be
    read are passed over.
    """
    searched: set[str] = set()
    for root, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in searched:
            folders.clear()
            continue
        searched.add(real)
        folders.sort()
        yield from (Path(root, name) for name in sorted((*folders, *files)))
