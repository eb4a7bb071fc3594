"""Tokens of a sweep that run together: what the memory holds, and for a run that goes on what it was begun with."""

from dataclasses import replace
from pathlib import Path

import pytest

from conftest import tiny_llama
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.runner.opening import folder_of
from layerwise.runner.options.common import BATCH_TOKENS
from layerwise.stack import Stack, load
from layerwise.stack.placement import SHARE
from layerwise.studies.sweep import batch_size
from layerwise.studies.sweep.batch_size import batch_tokens, bytes_of_token
from layerwise.studies.sweep.options import Sweep
from layerwise.studies.sweep.steps import SweepUnit
from tiny_tokenizers import ALPHABET, character_tokenizer

PLANS = [Plan.identity(4), Plan.parse("0 1*3 2 3")]


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(tiny_llama(4, vocabulary=3 + len(ALPHABET)), tokenizer=character_tokenizer())


CORPUS = Corpus(
    "texts", tuple(Document(f"{number}", "sphinx of black quartz " * 2 + chr(97 + number)) for number in range(9))
)


def free(monkeypatch: pytest.MonkeyPatch, stack: Stack, tokens: float) -> None:
    fixed = batch_size._LOGIT_BYTES * batch_size.CHUNK
    room = (tokens * bytes_of_token(stack, [Plan.identity(4)], 24) + fixed) / SHARE
    monkeypatch.setattr(batch_size, "free_memory", lambda device: int(room) + 1)


def test_a_longer_plan_and_a_longer_text_take_more(stack: Stack) -> None:
    assert bytes_of_token(stack, PLANS, 24) > bytes_of_token(stack, PLANS[:1], 24)
    assert bytes_of_token(stack, PLANS, 48) > bytes_of_token(stack, PLANS, 24)


def test_a_processor_with_room_runs_as_many_as_ever(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, stack, 10**9)
    assert batch_tokens(stack, PLANS, 24) == BATCH_TOKENS
    monkeypatch.setattr(batch_size, "free_memory", lambda device: None)
    assert batch_tokens(stack, PLANS, 24) == BATCH_TOKENS


def test_what_was_chosen_is_recorded_and_kept(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Sweep(model="tiny", families=("leave_one_out",), max_length=24, similarity=False, run=tmp_path / "run")

    def prepared(config: Sweep) -> SweepUnit:
        return SweepUnit(config, stack, CORPUS)

    free(monkeypatch, stack, 100)
    first = prepared(config)
    assert first.batch_tokens == 100
    assert first.manifest.numerics["batch_tokens"] == "100"
    assert max(batch.size for batch in first.text.batches) <= 100
    with Run.create(tmp_path / "run", first.manifest):
        pass
    free(monkeypatch, stack, 700)
    again = prepared(config)
    assert again.manifest.numerics == first.manifest.numerics
    assert max(batch.size for batch in again.text.batches) <= 100
    # Without a name the folder is found by what is measured; another folder or setting chooses a batch size again.
    assert prepared(replace(config, run=tmp_path / "other")).batch_tokens == 700
    assert prepared(replace(config, overwrite=True)).batch_tokens == 700
    assert prepared(replace(config, batch_tokens=50)).batch_tokens == 50
    assert prepared(replace(config, seed=1)).batch_tokens == 700
    monkeypatch.chdir(tmp_path)
    nameless = replace(config, run=None)
    with Run.create(folder_of(prepared(nameless).manifest), first.manifest):
        pass
    assert prepared(nameless).batch_tokens == 100
