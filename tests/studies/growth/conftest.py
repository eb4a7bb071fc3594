"""Inputs of growth trainings, made once: texts, a configuration without weights, and a checkpoint."""

from pathlib import Path

import pytest

from studies.growth.tiny_inputs import save_checkpoint, save_config, save_documents


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_documents(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="session")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_config(tmp_path_factory.mktemp("models") / "small")


@pytest.fixture(scope="session")
def checkpoint(config: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("models") / "trained", config, texts)
