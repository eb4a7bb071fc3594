"""What most cases begin with: a tiny model, a text, images, and what may lie in the place of any file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from cli.conftest import save_llama, save_texts
from cli.picture_models import save_vit


@cache
def _store() -> Path:
    folder = Path(mkdtemp(prefix="hostile-material-"))
    save_llama(folder / "model")
    save_texts(folder / "texts")
    save_vit(folder / "vit")
    return folder


def model(folder: Path) -> Path:
    return Path(shutil.copytree(_store() / "model", folder / "model"))


def texts(folder: Path) -> Path:
    return Path(shutil.copytree(_store() / "texts", folder / "texts"))


def vit(folder: Path) -> Path:
    """A vision transformer of three layers for grey images of ten classes, in `folder/model`."""
    return Path(shutil.copytree(_store() / "vit", folder / "model"))


def model_and_texts(folder: Path) -> None:
    model(folder)
    texts(folder)


Content = bytes | str | Callable[[Path], object]
"""What lies at a path: its content, or a function of the path that returns it, or that puts something else there."""


def put(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = content(path) if callable(content) else content
    if isinstance(made, str | bytes):
        path.write_bytes(made.encode() if isinstance(made, str) else made)


def nothing(path: Path) -> None:
    """Nothing at all."""


def pipe(path: Path) -> None:
    """A pipe that nobody writes to: whoever opens it waits for ever."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def device(path: Path) -> None:
    """A device without an end."""
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    """A link that leads to itself."""
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def empty_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def sparse(path: Path) -> None:
    """Three gigabytes that take no room."""
    path.touch()
    os.truncate(path, 3 << 30)


def configured(folder: Path, *without: str, **changes: object) -> Path:
    path = model(folder)
    settings = json.loads((path / "config.json").read_text())
    kept = {name: value for name, value in settings.items() if name not in without}
    (path / "config.json").write_text(json.dumps(kept | changes))
    return path
