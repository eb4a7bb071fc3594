"""Inputs of the command line: a tiny random Llama with its tokenizer, and a folder of texts."""

import json
import random
import textwrap
from pathlib import Path

import pytest
from transformers import AutoConfig

from conftest import tiny_llama
from tiny_tokenizers import ALPHABET, character_tokenizer

DEPTH = 4

PROSE = "\n".join(
    text or "" for text in (json.__doc__, textwrap.dedent.__doc__, random.__doc__, textwrap.TextWrapper.__doc__)
)


def save_llama(folder: Path, depth: int = DEPTH) -> Path:
    tiny_llama(depth, vocabulary=3 + len(ALPHABET)).save_pretrained(folder)
    character_tokenizer().save_pretrained(folder)
    return folder


def save_texts(folder: Path, count: int = 10, characters: int = 150) -> Path:
    folder.mkdir()
    for number in range(count):
        (folder / f"{number}.txt").write_text(PROSE[number * characters : (number + 1) * characters])
    return folder


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = save_llama(tmp_path_factory.mktemp("models") / "tiny")
    assert AutoConfig.from_pretrained(folder).num_hidden_layers == DEPTH
    return folder


@pytest.fixture
def own_model(tmp_path: Path) -> Path:
    return save_llama(tmp_path / "model")


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_texts(tmp_path_factory.mktemp("corpora") / "texts")


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "GITHUB_ACTIONS", "PY_COLORS"):
        monkeypatch.delenv(name, raising=False)
