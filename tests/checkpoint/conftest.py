"""Shared read-only models on disk."""

from pathlib import Path

import pytest

from conftest import tiny_llama
from tiny_tokenizers import character_tokenizer


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    tiny_llama(vocabulary=120).save_pretrained(folder)
    character_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    for seed, name in enumerate("ab"):
        tiny_llama(seed=seed).save_pretrained(root / name)
    return {name: root / name for name in "ab"}
