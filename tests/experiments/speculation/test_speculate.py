"""`layerwise time speculation`: what it expects, what it counts, and what it refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cli.command import layerwise as layerwise_command
from cli.conftest import save_llama
from layerwise.errors import MeasureError, OptionError, PlanError, UnsupportedModel
from layerwise.experiments.speculation import run
from layerwise.experiments.speculation.run import PromptTrial, prompt_rows, speculation_rows, stored_trials, twin
from layerwise.experiments.timing.config import SpeculativeDecoding
from layerwise.plan import Plan
from layerwise.results.selection import Rows
from layerwise.stack import Stack, load
from layerwise.stack.speculation import LayerPasses

SHORT = ("--prompts", "2", "--new-tokens", "6", "--context", "12", "--set", "agreement_tokens=1200")


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load("demo")


def test_an_assistant_has_the_tensors_of_the_model_and_computes_the_plan(stack: Stack) -> None:
    plan = Plan.parse("0-3 6-11")
    assistant = twin(stack, plan)
    pointers = {tensor.data_ptr() for tensor in (*stack.model.parameters(), *stack.model.buffers())}
    assert all(tensor.data_ptr() in pointers for tensor in (*assistant.parameters(), *assistant.buffers()))
    ids = torch.tensor([[5, 6, 7, 8]])
    with torch.inference_mode():
        torch.testing.assert_close(assistant(ids).logits, stack.logits(plan, input_ids=ids), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("plan", ["0-3 3-11", "0 (1|2) 3-11"])
def test_what_no_model_of_its_own_can_hold_has_no_assistant(stack: Stack, plan: str) -> None:
    with pytest.raises(UnsupportedModel, match="row of distinct layers"):
        twin(stack, Plan.parse(plan))


@pytest.fixture(scope="module")
def trials() -> list[PromptTrial]:
    """Three prompts: 16 tokens in 10, 8 and 5 rounds."""
    counts = [(16, 10, 6, 6), (16, 8, 16, 8), (16, 5, 20, 11)]
    return [
        PromptTrial(
            {"generate": 2.0, "speculative": seconds, "assistant": 3.0}, LayerPasses(12, 6, *count), 17, verdict
        )
        for count, seconds, verdict in zip(counts, (1.0, 2.0, 4.0), ("equal", "tie", "equal"), strict=True)
    ]  # fmt: skip


def test_rows_of_prompts_are_read_as_they_were_written(trials: list[PromptTrial]) -> None:
    assert stored_trials(prompt_rows(trials), 12, Plan.parse("0-5")) == trials
    assert stored_trials([], 12, Plan.parse("0-5")) == []


def test_the_figures_are_ratios_of_sums_over_prompts(trials: list[PromptTrial]) -> None:
    rows = Rows(speculation_rows(Plan.parse("0-5"), trials))
    assert rows.value(metric="layer_passes") == 23 * 12 + 42 * 6
    assert rows.value(metric="bound") == pytest.approx(48 * 12 / (23 * 12 + 42 * 6))
    assert rows.value(metric="acceptance") == pytest.approx(25 / 42)
    assert rows.value(metric="ratio", condition="generate") == pytest.approx(6 / 7)
    assert rows.value(metric="ratio", condition="assistant") == pytest.approx(9 / 7)
    assert rows.value(metric="tokens_per_second", condition="generate") == pytest.approx(51 / 6)
    assert not rows.where(metric="ratio", condition="speculative")
    assert [rows.value(metric=verdict) for verdict in ("equal", "tie", "other")] == [2, 1, 0]
    bound = rows.one(metric="bound")
    assert bound is not None
    assert bound.low is not None
    assert bound.high is not None
    assert bound.low < bound.value < bound.high
    (alone, *_) = speculation_rows(Plan.parse("0-5"), trials[:1])
    assert (alone.low, alone.documents) == (None, 1)


def test_a_share_of_nothing_is_no_row(trials: list[PromptTrial]) -> None:
    """Of two new tokens the first comes with the prompt and the last from the model: nothing is drafted."""
    plan = Plan.parse("0-5")
    undrafted = [replace(trial, passes=replace(trial.passes, draft_passes=0, accepted=0)) for trial in trials]
    ended = [replace(trial, passes=LayerPasses(12, 6)) for trial in trials]
    for given, absent in ((undrafted, {"acceptance"}), (ended, {"acceptance", "bound"})):
        rows = speculation_rows(plan, given)
        assert {"acceptance", "bound"} - {row.metric for row in rows} == absent


def test_a_prompt_without_drafts_does_not_count_for_their_share(trials: list[PromptTrial]) -> None:
    none = replace(trials[0], passes=LayerPasses(12, 6, tokens=1, rounds=1))
    share = next(row for row in speculation_rows(Plan.parse("0-5"), [*trials, none]) if row.metric == "acceptance")
    assert (share.value, share.documents) == (pytest.approx(25 / 42), 3)
    assert share.low is not None


def test_a_text_that_differs_is_an_error_once_all_are_stored(trials: list[PromptTrial]) -> None:
    assert run._refusal(trials) is None
    refusal = run._refusal([*trials, replace(trials[0], verdict="other")])
    assert isinstance(refusal, MeasureError)
    assert re.search(r"1 of 4 texts differ .* the first of prompt 3", str(refusal))


@pytest.mark.slow
def test_a_draft_that_is_given_and_a_text_that_differs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = save_llama(tmp_path / "model"), tmp_path / "texts.txt"
    texts.write_text("\n<|endoftext|>\n".join(f"text number {number} of 60" for number in range(60)))
    command = ("time", "speculation", model, "--text", texts, "--draft", "0 1 3", *SHORT, "--run")
    ended = layerwise_command(*command, tmp_path / "run")
    assert ended.code == 0, ended.err
    assert "draft 0 1 3: the whole model's arg-max at" in ended.out
    assert "equal to generate: 2 of 2 texts" in ended.out
    assert "x as fast as assistant" in ended.out
    monkeypatch.setattr(run, "verdict", lambda *_: "other")
    ended = layerwise_command(*command, tmp_path / "other")
    assert ended.code == 2
    assert "equal to generate: 0 of 2 texts" in ended.out


def test_a_draft_or_a_search_is_needed() -> None:
    with pytest.raises(OptionError, match="--draft PLAN"):
        SpeculativeDecoding(model="demo")
    with pytest.raises(OptionError, match="say which layers draft"):
        SpeculativeDecoding(model="demo", draft="0-3", search=True)
    with pytest.raises(PlanError):
        SpeculativeDecoding(model="demo", draft="0-")


def test_a_verdict_tells_a_tie_from_another_text(stack: Stack) -> None:
    ids = torch.tensor([[5, 6, 7]])
    with torch.inference_mode():
        order = stack.model(ids).logits[0, -1].argsort(descending=True)
    first, second = (torch.cat([ids, token.view(1, 1)], dim=-1) for token in order[:2])
    assert run.verdict(stack, ids, first, first) == "equal"
    assert run.verdict(stack, ids, first, second) == "other"
