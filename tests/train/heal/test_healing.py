"""A healing from beginning to end: killed and resumed, accumulated, in half precision, merged, opened by others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor

from layerwise.errors import CheckpointError
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.stack import load
from layerwise.train.heal.learning import load_healed
from layerwise.train.heal.options import HealingOptions, Method, healing_recipe
from layerwise.train.recipe import Settings
from layerwise.train.training import Base, train
from tier import first_fast
from train.heal.healing_models import PLAN, batch_of, logits_of, moved, opened, splits_for, trainer_of

QUIET: dict[str, Any] = {"use_cpu": True}
SETTINGS = Settings(epochs=2, batch_size=8, evals=3, learning_rate=1e-2, schedule="linear", warmup=0.2)
METHODS = pytest.mark.parametrize("method", first_fast(["lora", "full", "tail"]))


def healed(folder: Path, method: Method, kind: str = "llama", settings: Settings = SETTINGS) -> TrainingRecord:
    options = HealingOptions(method=method, hidden="cosine", rank=2)
    recipe = healing_recipe("healed", settings, PLAN, options)
    return train(Base(lambda: opened(kind), kind), splits_for(kind), recipe, 1, folder, arguments=QUIET)


def learned(folder: Path) -> dict[str, Tensor]:
    (path,) = (folder / MODEL).glob("*.safetensors")
    return load_file(path)


def test_peft_alone_opens_the_adapters(tmp_path: Path) -> None:
    stack, batch = opened("llama"), batch_of("llama")
    trainer = trainer_of(stack, "llama", tmp_path, HealingOptions(plan=str(PLAN), rank=2))
    moved(trainer)
    trainer.write(tmp_path / "adapter")
    foreign = PeftModel.from_pretrained(opened("llama").model, str(tmp_path / "adapter"))
    with torch.no_grad():
        expected = logits_of(stack, PLAN, batch)
        again = load(foreign, layers="base_model.model.model.layers")
        assert torch.equal(logits_of(again, PLAN, batch), expected)


@pytest.mark.parametrize("kind", first_fast(["mixtral", "llama"]))
@METHODS
def test_a_healed_model_opens_as_it_was_trained(method: Method, kind: str, tmp_path: Path) -> None:
    record = healed(tmp_path, method, kind)
    stack, base = load_healed(opened(kind), tmp_path / MODEL), opened(kind).model.state_dict()
    least = min(entry.loss for entry in record.history if entry.kind == "validation")
    moved = {name for name, weight in stack.model.state_dict().items() if not torch.equal(weight, base[name])}
    assert {name for name in base if ".3.mlp" in name and "gate.weight" not in name} <= moved, "experts learn, too"
    splits = splits_for(kind)
    batch = splits.collate([splits.validation[number] for number in range(len(splits.validation))])
    with torch.no_grad(), stack.under(PLAN, single_pass=True):
        assert float(stack.model(**batch).loss) == pytest.approx(least, rel=1e-4)


def test_a_folder_without_anything_learned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nothing that a healing left"):
        load_healed(opened("llama"), tmp_path)


@METHODS
def test_passes_that_are_accumulated_are_one_step(method: Method, tmp_path: Path) -> None:
    few = replace(SETTINGS, epochs=1, evals=1)
    whole = healed(tmp_path / "whole", method, settings=few)
    parts = healed(tmp_path / "parts", method, settings=replace(few, gradient_accumulation_steps=4))
    expected = [entry.loss for entry in whole.history]
    assert [entry.loss for entry in parts.history] == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_in_half_precision_weights_stay_float32(tmp_path: Path) -> None:
    record = healed(tmp_path, "lora", settings=replace(SETTINGS, precision="bfloat16"))
    assert all(weight.dtype == torch.float32 for weight in learned(tmp_path).values())
    first, *_, last = [entry.loss for entry in record.history if entry.kind == "train"]
    assert last < first
