import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from conftest import tiny_llama
from layerwise.data.batches import IGNORED
from layerwise.data.splits import Splits
from layerwise.errors import MeasureError
from layerwise.measure.interventions import accuracy
from layerwise.measure.interventions.accuracy import Numbers, Predictions, concatenate, evaluate, score_logits
from layerwise.measure.language import loss as loss_module
from layerwise.plan import Plan
from layerwise.stack import load
from measure.planted_classifiers import CLASSES, Listed, splits, turning

SPLITS = splits(20)
STACK = turning(4)


def by_hand(logits: Numbers, label: int) -> tuple[bool, bool, float]:
    better = int((logits > logits[label]).sum())
    return better == 0, better < 5, float(np.log(np.exp(logits - logits[label]).sum()))


@given(seed=st.integers(0, 99), count=st.integers(1, 6), classes=st.integers(2, 9))
def test_image_predictions_match_numpy(seed: int, count: int, classes: int) -> None:
    chance = torch.Generator().manual_seed(seed)
    logits = torch.randn(count, classes, generator=chance)
    labels = torch.randint(0, classes, (count,), generator=chance)
    found = score_logits(logits, labels)
    expected = [by_hand(row, label) for row, label in zip(logits.double().numpy(), labels.tolist(), strict=True)]
    assert found.hits.tolist() == [first for first, _, _ in expected]
    np.testing.assert_allclose(found.nll, [nats for _, _, nats in expected], rtol=1e-5, atol=1e-6)
    assert found.scored.tolist() == [1] * count
    if classes > 5:
        assert found.hits_top5.tolist() == [five for _, five, _ in expected]
    else:
        assert found.hits_top5 is None
        assert found.accuracy_top5 is None


def test_text_predictions_match_numpy() -> None:
    chance = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 5, 11, generator=chance)
    labels = torch.randint(0, 11, (3, 5), generator=chance)
    labels[0, 3:] = IGNORED
    labels[1, :] = IGNORED
    labels[2, 0] = 0  # there is nothing before the first token to predict it
    found = score_logits(logits, labels)
    for row in range(3):
        positions = [at for at in range(1, 5) if labels[row, at] != IGNORED]
        judged = [by_hand(logits[row, at - 1].double().numpy(), int(labels[row, at])) for at in positions]
        assert found.scored[row] == len(positions) == (2, 0, 4)[row]
        assert found.hits[row] == sum(first for first, _, _ in judged)
        assert found.nll[row] == pytest.approx(sum(nats for _, _, nats in judged), rel=1e-5)
    assert found.hits_top5 is None
    assert found.accuracy == pytest.approx(found.hits.sum() / 6)
    assert found.mean_nll == pytest.approx(found.nll.sum() / 6)


@pytest.mark.parametrize("apart", [True, False], ids=["head apart", "row by row"])
def test_text_logits_are_computed_in_chunks(apart: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks give the same result as all logits at once, with at most 20 tokens' logits held."""
    model, plan = tiny_llama(), Plan.parse("0 (1|2) 4-5")
    stack, chance = load(model), torch.Generator().manual_seed(0)
    texts = [torch.randint(3, 97, (length,), generator=chance) for length in (9, 3, 7, 5, 8)]
    labels = [torch.where(torch.rand(len(row), generator=chance) < 0.5, row, IGNORED) for row in texts]
    test = Listed([{"input_ids": row, "labels": label} for row, label in zip(texts, labels, strict=True)])
    collate = Splits("t", "d", test, test, test).collate
    batch = collate([test[index] for index in range(len(test))])
    with torch.inference_mode(), stack.under(plan):
        given = {name: tensor for name, tensor in batch.items() if name != "labels"}
        expected = score_logits(model(**given).logits, batch["labels"])
    if not apart:
        monkeypatch.setattr(accuracy, "find_head", lambda stack: None)
    held: list[int] = []
    model.lm_head.register_forward_hook(lambda module, args, logits: held.append(logits.numel()))
    for module in (accuracy, loss_module):
        monkeypatch.setattr(module, "CHUNK", 20 * 97)
    found = evaluate(stack, plan, test, collate)
    if apart:
        count = len(held)
        evaluate(stack, plan, test, collate)
        assert len(held) - count == count - 2, "the head is proved once"
    assert max(held[1 if apart else 0 :]) <= 20 * 97  # the first is of the tokens by which the head is proved
    assert len(held) > 2
    for name in ("nll", "hits", "scored"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-5)


def test_every_batch_runs_its_plan() -> None:
    plans = [Plan.parse(text) for text in ("0-3", "3-0", "2 0")]
    found = evaluate(STACK, plans.__getitem__, SPLITS.test, SPLITS.collate, batch_size=8)
    nats: list[float] = []
    for number, plan in enumerate(plans):
        rows = [SPLITS.test[index] for index in range(number * 8, min(20, number * 8 + 8))]
        state = torch.stack([row["pixel_values"] for row in rows]).clone()
        state[..., CLASSES:] /= 10_000
        logits = walked(state, plan)
        nats += [by_hand(row, int(each["labels"]))[2] for row, each in zip(logits.double().numpy(), rows, strict=True)]
    np.testing.assert_allclose(found.nll, nats, rtol=1e-4)


def walked(state: Tensor, plan: Plan) -> Tensor:
    with torch.inference_mode():
        for layer in plan.order():
            weight = dict(STACK.block(layer).named_parameters())["weight"]
            state = state + torch.tanh(state @ weight)
    return state[:, 0, CLASSES:]


def test_top_five_requires_every_batch() -> None:
    wide, narrow = (
        score_logits(torch.randn(2, 7), torch.tensor([0, 1])),
        score_logits(torch.randn(2, 3), torch.tensor([0, 1])),
    )
    assert concatenate([wide, wide]).hits_top5 is not None
    assert concatenate([wide, narrow]).hits_top5 is None


def test_non_finite_loss_names_the_plan() -> None:
    stack = turning(3)
    with torch.no_grad():
        dict(stack.block(1).named_parameters())["weight"].fill_(torch.nan)
    assert isinstance(evaluate(stack, Plan.parse("2 0"), SPLITS.test, SPLITS.collate), Predictions)
    with pytest.raises(MeasureError, match="loss under 2-0 must be finite"):
        evaluate(stack, Plan.parse("2 1 0"), SPLITS.test, SPLITS.collate)
