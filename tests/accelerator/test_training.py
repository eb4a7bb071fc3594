"""Training on an accelerator: every recipe runs, and a resumed run ends near the uninterrupted one.

Backward kernels may add in any order, so the two are not compared to the bit.
"""

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.plan import Plan
from layerwise.plan.schedule import GrowthSchedule, ModelCost, Phase
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.stack import Stack, load
from layerwise.train.heal.options import HealingOptions, healing_recipe
from layerwise.train.methods import METHODS, Options, recipe
from layerwise.train.pretrain.recipe import pretraining_recipe
from layerwise.train.pretrain.trainer import PretrainingTrainer, pretrain
from layerwise.train.recipe import GrowthExtension, Recipe, Settings, grown
from layerwise.train.trainer import PlanTrainer
from layerwise.train.training import Base, train
from tier import first_fast
from train.pretraining_text import documents, pretraining_text
from train.tiny_models import saved_weights, tiny_digits, tiny_llama, tiny_text, tiny_vit

DEPTH = 4
NEAR = 0.1
"""Maximum difference of the two ends, as a share of the change by training."""

SCHEDULE = GrowthSchedule(
    "grows", DEPTH, (Phase("first", 0.5, (0, 1, 2, 3)), Phase("top", 0.5, (2, 3), embedding=False, head=False))
)
GROWTH = GrowthExtension(SCHEDULE, 6, ModelCost((3.0,) * DEPTH, embedding=0.0, head=1.0))


def settings_of(dtype: torch.dtype, **more: Any) -> Settings:
    precision: Any = "float32" if dtype == torch.float32 else "bfloat16"
    return Settings(epochs=2, batch_size=8, evals=3, learning_rate=1e-2, precision=precision, **more)


def quiet(device: torch.device) -> dict[str, Any]:
    return {"use_cpu": True} if device.type == "cpu" else {}


def opened(kind: str, device: torch.device) -> Stack:
    model: Any = tiny_llama(DEPTH) if kind == "llama" else tiny_vit(DEPTH)
    return load(model.to(device))


def trained(made: Recipe, kind: str, device: torch.device, folder: Path) -> TrainingRecord:
    splits = tiny_text() if kind == "llama" else tiny_digits()
    return train(Base(lambda: opened(kind, device), kind), splits, made, 1, folder, arguments=quiet(device))


def recipes(dtype: torch.dtype) -> dict[str, Recipe]:
    options = Options(settings_of(dtype))
    made = {name: recipe(name, options, DEPTH) for name in METHODS}
    return {**made, "growth": grown(settings_of(dtype, warmup=0.2), GROWTH)}


IN_CI = ("layershuffle-predict", "wiring-softmax", "growth")
NAMES = [pytest.param(name, marks=[] if name in IN_CI else [pytest.mark.nightly]) for name in (*METHODS, "growth")]


@pytest.mark.parametrize("name", NAMES)
def test_recipes_train(name: str, device: torch.device, dtype: torch.dtype, tmp_path: Path) -> None:
    made, kind = recipes(dtype)[name], "vit" if "predict" in name else "llama"
    record = trained(made, kind, device, tmp_path)
    assert record.steps == made.steps(24)
    assert all(math.isfinite(moment.loss) for moment in record.history)
    assert any(moment.kind == "validation" for moment in record.history)


@pytest.mark.parametrize("method", first_fast(["lora", "full", "tail"], 2, slow=0))
def test_healing_trains(method: Any, device: torch.device, dtype: torch.dtype, tmp_path: Path) -> None:
    options = HealingOptions(method=method, hidden="cosine", rank=2)
    record = trained(
        healing_recipe("healed", settings_of(dtype), Plan.parse("0 2-3"), options), "llama", device, tmp_path
    )
    assert all(math.isfinite(moment.loss) for moment in record.history)


@pytest.mark.parametrize("variant", ["ltg", "elc"])
def test_pretraining_trains(variant: str, device: torch.device, dtype: torch.dtype, tmp_path: Path) -> None:
    record = pretrained(variant, device, dtype, tmp_path)
    assert record.steps == 6
    assert record.figures["tokens"] > 0
    assert all(math.isfinite(moment.loss) for moment in record.history)


def pretrained(variant: str, device: torch.device, dtype: torch.dtype, folder: Path) -> TrainingRecord:
    words = [each.text for each in documents(0, 16)]
    tokenizer = train_wordpiece(words, vocabulary=280)
    parts = {"train": documents(0, 16), "validation": documents(16, 3), "test": documents(19, 8)}
    made = pretraining_recipe(
        "tiny",
        variant,
        steps=6,
        batch_size=8,
        lengths=(16, 48),
        short=0.67,
        evals=3,
        dropout=0.1,
        vocabulary=None,
        precision="float32" if dtype == torch.float32 else "bfloat16",
    )
    text = pretraining_text(tokenizer, parts)
    return pretrain(tokenizer, text, made, 0, folder, arguments=quiet(device))


class InterruptedTrainingError(Exception):
    """Interrupt a training."""


Training = Callable[[torch.device, torch.dtype, Path], object]
TRAININGS: dict[str, tuple[Training, Any]] = {
    name: (lambda device, dtype, folder, name=name: trained(recipes(dtype)[name], "llama", device, folder), PlanTrainer)
    for name in ("layershuffle", "layerdrop", "growth")
} | {"elc": (lambda device, dtype, folder: pretrained("elc", device, dtype, folder), PretrainingTrainer)}


@pytest.mark.parametrize("name", first_fast(TRAININGS, 1, slow=0))
def test_resumed_training_equals_uninterrupted(
    name: str, device: torch.device, dtype: torch.dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, trainer = TRAININGS[name]
    run(device, dtype, tmp_path / "straight")
    own = trainer.training_step

    def stopping(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        if self.state.global_step == 3:
            raise InterruptedTrainingError
        step: Tensor = own(self, *args, **kwargs)
        return step

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "training_step", stopping)
        with pytest.raises(InterruptedTrainingError):
            run(device, dtype, tmp_path / "stopped")
    kept = tmp_path / "stopped" / "checkpoint-2"
    start = {name: value.float() for name, value in _weights(kept).items()}
    wrong = tmp_path / "forgetful"
    shutil.copytree(tmp_path / "stopped", wrong)
    run(device, dtype, tmp_path / "stopped")
    straight, resumed = (saved_weights(tmp_path / each) for each in ("straight", "stopped"))
    assert _distance(resumed, straight) <= NEAR * _distance(start, straight)
    (wrong / "checkpoint-2" / "optimizer.pt").unlink()
    run(device, dtype, wrong)
    assert _distance(saved_weights(wrong), straight) > NEAR * _distance(start, straight), "the test sees nothing"


def _weights(checkpoint: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    return load_file(checkpoint / f"{MODEL}.safetensors")


def _distance(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return math.sqrt(sum(float((one[name].float() - other[name].float()).square().sum()) for name in other))
