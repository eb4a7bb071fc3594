"""What most cases begin with: a tiny model, a text, images, each put into a case's folder."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from tempfile import mkdtemp

from cli.conftest import save_llama, save_texts
from cli.picture_models import save_vit


@cache
def _store() -> Path:
    """A folder of this process with what is made once and copied."""
    folder = Path(mkdtemp(prefix="hostile-material-"))
    save_llama(folder / "model")
    save_texts(folder / "texts")
    save_vit(folder / "vit")
    return folder


def model(folder: Path) -> Path:
    """A Llama of four layers in `folder/model`, with a tokenizer of characters."""
    return Path(shutil.copytree(_store() / "model", folder / "model"))


def texts(folder: Path) -> Path:
    """Ten texts in `folder/texts`."""
    return Path(shutil.copytree(_store() / "texts", folder / "texts"))


def vit(folder: Path) -> Path:
    """A vision transformer of three layers for grey images of ten classes, in `folder/model`."""
    return Path(shutil.copytree(_store() / "vit", folder / "model"))


def model_and_texts(folder: Path) -> None:
    """Both."""
    model(folder)
    texts(folder)
