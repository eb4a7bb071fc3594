"""Common inputs: a tiny model, a text, images, and what may replace any file."""

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
    return Path(shutil.copytree(_store() / "vit", folder / "model"))


def model_and_texts(folder: Path) -> None:
    model(folder)
    texts(folder)


Content = bytes | str | Callable[[Path], object]
"""The content of a path, or a function that returns it or creates something else there."""


def put(path: Path, content: Content) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = content(path) if callable(content) else content
    if isinstance(made, str | bytes):
        path.write_bytes(made.encode() if isinstance(made, str) else made)


def nothing(path: Path) -> None:
    """Leave the path missing."""


def pipe(path: Path) -> None:
    """Make a named pipe, which blocks readers."""
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def device(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")


def loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def empty_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def sparse(path: Path) -> None:
    """Make a sparse file of three gigabytes."""
    path.touch()
    os.truncate(path, 3 << 30)


def configured(folder: Path, *without: str, **changes: object) -> Path:
    path = model(folder)
    settings = json.loads((path / "config.json").read_text())
    kept = {name: value for name, value in settings.items() if name not in without}
    (path / "config.json").write_text(json.dumps(kept | changes))
    return path
