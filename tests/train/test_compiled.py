"""Trainings with compiled blocks."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

from compiling import COMPILES
from layerwise.plan.schedule import GrowthSchedule, Phase
from layerwise.plan.schedule.cost import ModelCost
from layerwise.stack import load
from layerwise.train.methods import Options, recipe
from layerwise.train.pretrain import trainer
from layerwise.train.recipe import GrowthExtension, Recipe, Settings, grown
from layerwise.train.training import Base, train
from train.pretrain.test_pretraining import run
from train.pretraining_text import RECIPE
from train.tiny_models import saved_weights, tiny_digits, tiny_llama, tiny_text, tiny_vit

pytestmark = COMPILES

DEPTH = 3
SETTINGS = Settings(epochs=2, batch_size=8, evals=2, learning_rate=1e-3)
QUIET: dict[str, Any] = {"use_cpu": True}
GROWTH = GrowthSchedule(
    "growth",
    DEPTH,
    (Phase("core", 0.5, (1,), embedding=False, head=False, present=(0, 1)), Phase("all", 0.5, (0, 1, 2))),
)
GROWN = GrowthExtension(GROWTH, 6, ModelCost((3.0,) * DEPTH, embedding=0.0, head=1.0))


def close(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.allclose(one[name], other[name], atol=1e-5) for name in one)


def trained(what: Recipe, folder: Path, *, compiled: bool) -> dict[str, Tensor]:
    base, splits = (tiny_llama, tiny_text()) if what.growth else (tiny_vit, tiny_digits())
    settings = replace(what.settings, compiled=compiled)
    train(Base(lambda: load(base()), "tiny"), splits, replace(what, settings=settings), 0, folder, arguments=QUIET)
    return saved_weights(folder)


@pytest.mark.parametrize(
    ("what", "most"),
    [
        pytest.param(recipe("layershuffle", Options(SETTINGS), DEPTH), 2, marks=pytest.mark.nightly),
        pytest.param(recipe("layershuffle-position", Options(SETTINGS), DEPTH), 2, marks=pytest.mark.slow),
        pytest.param(recipe("wiring-identity", Options(SETTINGS), DEPTH), 2, marks=pytest.mark.slow),
        pytest.param(recipe("layerdrop", Options(SETTINGS), DEPTH), 2, marks=pytest.mark.slow),
        pytest.param(grown(SETTINGS, GROWN), 5, marks=pytest.mark.slow),
    ],
    ids=lambda what: getattr(what, "variant", None),
)
def test_blocks_are_compiled_once_for_any_plan(
    what: Recipe, most: int, graphs: CompileCounterWithBackend, tmp_path: Path
) -> None:
    assert close(trained(what, tmp_path / "compiled", compiled=True), trained(what, tmp_path / "plain", compiled=False))
    assert graphs.frame_count == most


@pytest.mark.slow
def test_pretraining_compiles_one_graph_for_both_lengths(
    graphs: CompileCounterWithBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: set[int] = set()
    rows: list[bool] = []

    class Noted(trainer.PretrainingTrainer):
        def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            loss, output = super().compute_loss(model, inputs, *args, **{**kwargs, "return_outputs": True})
            if model.training:
                lengths.add(inputs["input_ids"].shape[1])
                rows.append(len(output["logits"]) == (inputs["labels"] >= 0).sum())
            return (loss, output) if kwargs.get("return_outputs") else loss

    monkeypatch.setattr(trainer, "PretrainingTrainer", Noted)
    plain = replace(RECIPE, dropout=0.0, learning_rate=1e-3)
    weights = []
    for name, settings in (("plain", {}), ("compiled", {"compiled": True}), ("packed", {"padding_free": True})):
        run(tmp_path / name, replace(plain, **settings))
        weights.append(saved_weights(tmp_path / name))
    assert close(weights[0], weights[1])
    assert close(weights[0], weights[2])
    assert len(lengths) > 1
    assert all(rows)
    assert graphs.frame_count == 2  # training and validation
