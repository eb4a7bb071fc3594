"""Batch size of a sweep: limited by the memory, and kept by a resumed run."""

from pathlib import Path
from typing import Any

import pytest

import layerwise
from conftest import tiny_llama
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.measure.language.evaluation_data import BATCH_TOKENS
from layerwise.plan import Plan
from layerwise.results import Manifest, Run
from layerwise.runner.opening import default_folder
from layerwise.stack import Stack, load
from layerwise.stack.placement import SHARE
from layerwise.studies.sweep import steps
from layerwise.studies.sweep.steps import choose_batch_tokens, estimate_bytes_per_token
from studies.describing import describe_call
from tiny_tokenizers import ALPHABET, character_tokenizer

PLANS = [Plan.identity(4), Plan.parse("0 1*3 2 3")]


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(tiny_llama(4, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())


CORPUS = Corpus(
    "texts", tuple(Document(f"{number}", "sphinx of black quartz " * 2 + chr(97 + number)) for number in range(9))
)


def free(monkeypatch: pytest.MonkeyPatch, stack: Stack, tokens: float) -> None:
    fixed = steps.LOGIT_BYTES * steps.CHUNK
    room = (tokens * estimate_bytes_per_token(stack, [Plan.identity(4)], 24) + fixed) / SHARE
    monkeypatch.setattr(steps, "free_memory", lambda device: int(room) + 1)


def test_longer_plans_and_texts_need_more_memory(stack: Stack) -> None:
    assert estimate_bytes_per_token(stack, PLANS, 24) > estimate_bytes_per_token(stack, PLANS[:1], 24)
    assert estimate_bytes_per_token(stack, PLANS, 48) > estimate_bytes_per_token(stack, PLANS, 24)


def test_a_processor_with_enough_memory_runs_the_default_batch(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, stack, 10**9)
    assert choose_batch_tokens(stack, PLANS, 24) == BATCH_TOKENS
    monkeypatch.setattr(steps, "free_memory", lambda device: None)
    assert choose_batch_tokens(stack, PLANS, 24) == BATCH_TOKENS


def test_the_batch_size_is_recorded_and_kept(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"families": ("leave_one_out",), "max_length": 24, "similarity": False}

    def prepared(**more: Any) -> tuple[int, Manifest, int]:
        description = describe_call(layerwise.sweep, stack, CORPUS, **{**options, "run": tmp_path / "run", **more})
        largest = max(batch.size for batch in description.tasks[0].text.batches)
        return int(description.manifest.numerics["batch_tokens"]), description.manifest, largest

    free(monkeypatch, stack, 100)
    size, manifest, largest = prepared()
    assert size == 100 >= largest
    with Run.create(tmp_path / "run", manifest):
        pass
    free(monkeypatch, stack, 700)
    again, kept, largest = prepared()
    assert again == 100 >= largest
    assert kept.numerics == manifest.numerics
    # Without a name the options identify the folder; another folder or setting gets a new batch size.
    assert prepared(run=tmp_path / "other")[0] == 700
    assert prepared(overwrite=True)[0] == 700
    assert prepared(batch_tokens=50)[0] == 50
    assert prepared(seed=1)[0] == 700
    monkeypatch.chdir(tmp_path)
    with Run.create(default_folder(prepared(run=None)[1]), manifest):
        pass
    assert prepared(run=None)[0] == 100
