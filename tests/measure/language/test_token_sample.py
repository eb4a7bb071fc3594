"""A sample of the scored tokens: equally likely, the same for every plan, and with intervals that know of it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from conftest import tiny_llama
from layerwise.data.batches import IGNORED, Batch, LabelledBatch, item
from layerwise.errors import MeasureError
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import window_losses
from layerwise.measure.language.token_sample import drawn_positions, token_sample
from layerwise.stack import load
from measure.language.test_loss import ragged_batch
from tier import by_tier

STACK = load(tiny_llama())
TEXT = EvalData("ragged", "0", 12, "next_token", (ragged_batch(),))


@given(st.integers(1, 200), st.floats(0.01, 1), st.integers(0, 10**6))
def test_so_many_places_are_kept_and_each_once(count: int, share: float, seed: int) -> None:
    kept = drawn_positions(count, share, Random(seed))
    assert share * count <= len(kept) + 1e-6 < share * count + 1 + 1e-5
    assert sorted(set(kept)) == list(kept)
    assert set(kept) <= set(range(count))


@pytest.mark.parametrize(("count", "share"), [(10, 0.3), (7, 0.5), (23, 0.1)])
def test_every_token_is_equally_likely(count: int, share: float) -> None:
    draws = 4000
    counted = np.bincount(
        [position for seed in range(draws) for position in drawn_positions(count, share, Random(seed))], minlength=count
    )
    expected = counted.sum() / count
    assert abs(counted - expected).max() < 4.5 * np.sqrt(expected)


def test_a_share_of_one_is_the_text_itself() -> None:
    assert token_sample(TEXT, 1.0) is TEXT


def test_inputs_and_windows_stay_and_targets_go() -> None:
    (before,), (after,) = TEXT.batches, token_sample(TEXT, 0.5).batches
    assert isinstance(before, Batch)
    assert isinstance(after, Batch)
    assert after.windows == before.windows
    assert torch.equal(after.input_ids, before.input_ids)
    assert after.scored.sum(1).tolist() == [6, 2, 2]
    assert bool((before.scored | ~after.scored).all())
    assert torch.equal(after.targets[after.scored], before.targets[after.scored])


def test_the_sample_is_that_of_the_seed_whatever_the_batches() -> None:
    first, again, other = (targets(token_sample(TEXT, 0.3, seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    (batch,) = TEXT.batches
    assert isinstance(batch, Batch)
    alone = replace(batch, **{name: getattr(batch, name)[:1] for name in ("input_ids", "attention_mask", "targets")})
    alone = replace(alone, windows=batch.windows[:1])
    assert torch.equal(targets(token_sample(replace(TEXT, batches=(alone,)), 0.3)), first[:1])


def test_answers_stay_whole() -> None:
    answers = replace(TEXT, answer_tasks=("text",))
    assert torch.equal(targets(token_sample(answers, 0.1)), targets(TEXT))


def test_labelled_items_stay_as_they_are() -> None:
    batch = LabelledBatch({"pixel_values": torch.zeros(2, 1)}, torch.tensor([0, 1]), (item("a"), item("b")))
    assert token_sample(replace(TEXT, batches=(batch,)), 0.1).batches == (batch,)


def test_another_share_is_another_text() -> None:
    names = {(text.name, text.digest) for text in (TEXT, token_sample(TEXT, 0.5), token_sample(TEXT, 0.25))}
    assert len({name for name, _ in names}) == len({digest for _, digest in names}) == 3
    assert token_sample(TEXT, 0.5).digest != token_sample(TEXT, 0.5, seed=1).digest


@pytest.mark.parametrize("share", [0.0, -0.5, 1.5, float("nan")])
def test_an_impossible_share_is_refused(share: float) -> None:
    with pytest.raises(MeasureError, match=r"use a share above 0 and at most 1, such as 0\.25"):
        token_sample(TEXT, share)


@pytest.mark.parametrize("by_token", [True, False])
def test_a_loss_is_that_of_the_kept_tokens_times_their_expansion(
    monkeypatch: pytest.MonkeyPatch, by_token: bool
) -> None:
    monkeypatch.setattr(STACK, "head_by_token", by_token)
    text = token_sample(TEXT, 0.5)
    (batch,) = text.batches
    assert isinstance(batch, Batch)
    with torch.inference_mode():
        captured = STACK.capture(**batch.inputs)
        state = STACK.run("0 2-5", captured)
        found = window_losses(STACK, state, batch)
        logits = STACK.logits("0 2-5", **batch.inputs)
    each = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED, reduction="none"
    )
    sums = each.view(batch.targets.shape).double().sum(1) * torch.tensor([11 / 6, 4 / 2, 3 / 2])
    assert [loss.nll for loss in found] == pytest.approx(sums.tolist(), rel=1e-5)
    assert [loss.tokens for loss in found] == [11, 4, 3]


def test_the_mean_over_samples_is_the_loss_of_all_tokens() -> None:
    """Unbiased: the mean over many samples tends to what the whole text gives, plan by plan."""
    plans = ["0 2-5", "5-0"]
    whole = {(row.plan, row.document): row.nll for row in sweep(STACK, plans, TEXT)}
    draws = by_tier(fast=30, nightly=400)
    drawn: dict[tuple[str, str], list[float]] = {key: [] for key in whole}
    for seed in range(draws):
        for row in sweep(STACK, plans, token_sample(TEXT, 0.4, seed)):
            drawn[row.plan, row.document].append(row.nll)
    for key, values in drawn.items():
        assert abs(np.mean(values) - whole[key]) < 4.5 * np.std(values) / np.sqrt(draws)


def targets(text: EvalData) -> torch.Tensor:
    (batch,) = text.batches
    return batch.targets
