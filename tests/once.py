"""Share what several test processes need: one of them makes it, and the others wait for it and read it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """Return the shared folder `name` filled by `make`, which is retried in an empty folder after a failure."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / name
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            fresh = factory.mktemp(name)
            make(fresh)
            fresh.rename(folder)
    return folder
