"""What experiments are tried on: the tiny model and the texts of the command line's tests."""

from pathlib import Path

import pytest

from cli.conftest import model, own_model, plain_terminal, texts
from cli.picture_models import save_vit

__all__ = ["model", "own_model", "plain_terminal", "texts"]


@pytest.fixture(scope="session")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vit(tmp_path_factory.mktemp("models") / "vit")
