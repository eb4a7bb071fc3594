import math
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch

from conftest import tiny_llama
from layerwise.data.batches import LabeledBatch, make_item
from layerwise.data.splits import Splits
from layerwise.measure.activations.by_position import branch_norms
from layerwise.measure.activations.embedding import outputs_by_position
from layerwise.measure.interventions.accuracy import evaluate
from layerwise.measure.interventions.predicted_weight_loss import predicted_weight_loss
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.language.loss import window_losses
from layerwise.measure.language.pseudo_likelihood import Passage, SentenceScorer, log_likelihoods
from layerwise.measure.stats.float64 import to_float64, to_float64_cpu, widen
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.stack import Stack, load
from measure.language.test_loss import vision_stack
from measure.narrow_device import moved, pretended
from measure.planted_classifiers import Listed
from measure.planted_models import own_text, planted
from measure.test_contract import MEASURES as CONTRACT
from tiny_tokenizers import character_tokenizer

DEPTH = 4
READING = own_text(load(planted(depth=DEPTH)), windows=4, length=6)
TEXTS = Listed([{"input_ids": row, "labels": row} for batch in READING.batches for row in batch.inputs["input_ids"]])
collate = Splits("s", "d", TEXTS, TEXTS, TEXTS).collate

Figures = dict[tuple[str, ...], float]


def figures(rows: Iterable[Score]) -> Figures:
    return {(row.measure, row.claim, row.task, row.metric): row.value for row in rows}


def _numbered(values: Iterable[float]) -> Figures:
    return {(str(index),): float(value) for index, value in enumerate(values)}


def _losses(stack: Stack, reading: EvalData) -> Figures:
    found = sweep(stack, [Plan.parse("0 (1|2) 3")], reading)
    return {(row.plan, row.document): row.nll for row in found}


def _by_position(stack: Stack, reading: EvalData) -> Figures:
    rows, _ = branch_norms(stack, "arm", TEXTS, collate)
    return figures(rows) | _numbered(outputs_by_position(stack, [1], TEXTS, collate, count=2).flat)


def _judged(stack: Stack, reading: EvalData) -> Figures:
    return _numbered(evaluate(stack, Plan.parse("0 2-3"), TEXTS, collate).nll)


MEASURES: dict[str, Callable[[Stack, EvalData], Figures]] = {
    "losses": _losses,
    **{
        name: lambda stack, reading, measure=measure: figures(measure(stack, reading, 0))
        for name, measure in CONTRACT.items()
    },
    "predicted weights": lambda stack, reading: figures(predicted_weight_loss(stack, reading)),
    "by_position": _by_position,
    "judgement": _judged,
}


SECONDS_LONG = frozenset(
    {"proxies", "predictability", "predicted weights", "ablation", "manipulation", "recovery", "by_position"}
)


@pytest.mark.parametrize(
    "measure", [pytest.param(name, marks=[pytest.mark.slow] * (name in SECONDS_LONG)) for name in MEASURES]
)
def test_measures_run_on_a_device_without_float64(measure: str) -> None:
    expected = MEASURES[measure](load(planted(depth=DEPTH)), READING)
    with pretended() as device:
        stack = load(moved(planted(depth=DEPTH)))
        assert stack.device == device
        found = MEASURES[measure](stack, READING)
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert math.isclose(found[key], value, rel_tol=1e-3, abs_tol=1e-4), key


def test_images_and_sentences_run_on_a_device_without_float64() -> None:
    pixels = torch.randn(3, 3, 8, 8, generator=torch.Generator().manual_seed(6))
    batch = LabeledBatch({"pixel_values": pixels}, torch.tensor([0, 4, 2]), tuple(make_item(f"i{n}") for n in range(3)))
    tokenizer = character_tokenizer()
    with pretended() as device:
        stack = load(moved(vision_stack().model))
        captured = stack.capture(pixel_values=pixels.to(device))
        assert len(window_losses(stack, stack.run(Plan.identity(4), captured), batch)) == 3
        model = moved(tiny_llama(2, vocabulary=len(tokenizer)))
        found = log_likelihoods(SentenceScorer.from_model(model, tokenizer), [Passage("abc"), Passage("cab")])
    assert (found < 0).all()


def test_widened_tensors_stay_on_their_device() -> None:
    values = torch.tensor([1.0, 1e-9])
    assert to_float64(values).dtype == to_float64_cpu(values).dtype == widen(values).dtype == torch.float64
    with pretended() as device:
        there = values.to(device)
        assert (to_float64(there).dtype, to_float64(there).device.type) == (torch.float64, "cpu")
        assert (to_float64_cpu(there).dtype, to_float64_cpu(there).device.type) == (torch.float64, "cpu")
        assert (widen(there).dtype, widen(there).device.type) == (torch.float32, "mps")
        with pytest.raises(TypeError, match="float64"):
            there.double()


def test_only_the_float64_module_widens_tensors() -> None:
    import layerwise

    home = Path(layerwise.__file__).parent
    found = {str(path.relative_to(home)) for path in home.rglob("*.py") if ".double()" in path.read_text()}
    assert found == {"measure/stats/float64.py"}
