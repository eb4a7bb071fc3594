"""Pretraining: recipes, phases, resumption and errors."""

import json
import math
import shutil
from ast import literal_eval
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForMaskedLM, AutoTokenizer

from layerwise.data.text.segments import PretrainingText
from layerwise.errors import TrainError
from layerwise.models.elc.configuration import SIZES
from layerwise.results.training_record import FILE, MODEL, TrainingRecord
from layerwise.runner.training_runs import average_over_seeds, make_training_rows
from layerwise.studies.train_elc.evaluation import pretrained_rows
from layerwise.train.checkpoint_dir import CONFIG
from layerwise.train.pretrain import trainer
from layerwise.train.pretrain.recipe import PRESETS, PretrainingRecipe
from layerwise.train.pretrain.trainer import pretrain
from rounding import unit
from tier import first_fast
from train.kinds import Noted, StoppedError, watched
from train.pretraining_text import RECIPE, STEPS, TEXT, TOKENIZER

QUIET: dict[str, Any] = {"use_cpu": True}


def run(
    folder: Path, recipe: PretrainingRecipe = RECIPE, text: PretrainingText = TEXT, seed: int = 0, **arguments: Any
) -> TrainingRecord:
    return pretrain(TOKENIZER, text, recipe, seed, folder, arguments={**QUIET, **arguments})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, TrainingRecord]:
    folder = tmp_path_factory.mktemp("finished")
    return folder, run(folder)


def test_published_sizes_have_published_settings() -> None:
    small, base = PRESETS["small"], PRESETS["base"]
    assert (small.steps, small.learning_rate, small.weight_decay) == (31_250, 5e-3, 0.4)
    assert (base.steps, base.batch_size, base.learning_rate, base.weight_decay) == (15_625, 32_768, 1e-2, 0.1)
    for each in (small, base):
        assert (each.betas, each.epsilon, each.max_grad_norm, each.floor) == ((0.9, 0.98), 1e-6, 2.0, 0.1)
        assert (each.lengths, each.short, each.warmup, each.dropout) == ((128, 512), 0.9, 0.016, 0.1)
        assert (each.mask_probability, each.stop) == (0.15, 1 / 3)
    assert set(PRESETS) == set(SIZES)
    assert {name: preset.size for name, preset in PRESETS.items()} == {name: name for name in SIZES}


def test_both_phases_run_in_one_training(tmp_path: Path) -> None:
    noted = Noted()
    with watched(noted):
        done = run(tmp_path)
    shapes = [literal_eval(shape) for shape in noted.plans]
    assert [shape[0] for shape in shapes] == [8, 8, 8, 8, 2, 2]
    assert all(shape[1] <= 16 for shape in shapes[:4])
    assert all(16 < shape[1] <= 48 for shape in shapes[4:])
    assert (done.steps, done.best_step, done.examples) == (STEPS, STEPS, 4 * 8 + 2 * 2)
    assert done.epochs == done.figures["tokens"] / TEXT.train.tokens
    assert sorted(path.name for path in tmp_path.iterdir()) == [MODEL, CONFIG]


def test_transformers_loads_the_pretrained_model(finished: tuple[Path, TrainingRecord]) -> None:
    folder, done = finished
    model = AutoModelForMaskedLM.from_pretrained(folder / MODEL)
    tokenizer = AutoTokenizer.from_pretrained(folder / MODEL)
    assert model.config.pad_token_id == tokenizer.pad_token_id
    assert model.num_parameters() == done.figures["parameters"]
    logits = model(**tokenizer("The [MASK] ran.", return_tensors="pt")).logits
    assert logits.shape[-1] == len(tokenizer)
    assert TrainingRecord.read(folder / MODEL) == done


def test_rows_have_the_training_cost(finished: tuple[Path, TrainingRecord]) -> None:
    _, done = finished
    rows = {(row.step, row.metric): row.value for row in make_training_rows({("elc", 0): done})}
    assert rows[None, "steps"] == STEPS
    assert 0 < rows[None, "tokens"] <= 4 * 8 * 16 + 2 * 2 * 48
    assert rows[None, "step_seconds"] > 0
    assert rows[None, "peak_bytes"] > 1e7
    assert {metric for step, metric in rows if step == 6} == {"train_loss", "validation_loss"}


def test_held_out_rows_and_layer_weights(finished: tuple[Path, TrainingRecord]) -> None:
    found = pretrained_rows("elc", 0, finished[0] / MODEL, TEXT.test, RECIPE)
    nll = next(row for row in found if row.measure == "masked_lm")
    assert nll.low < nll.value < nll.high
    assert (nll.task, nll.metric, nll.documents) == ("all", "nll", 8)
    readers: dict[int | None, list[float]] = {}
    for row in found:
        if row.measure == "alpha":
            readers.setdefault(row.layer, []).append(row.value)
    assert {reader: len(weights) for reader, weights in readers.items()} == {n: n + 1 for n in range(6)}
    assert all(sum(weights) == pytest.approx(1, abs=1e-5) for weights in readers.values())
    (variant,) = average_over_seeds([nll])
    assert (variant.variant, variant.seed, variant.value, variant.low) == ("elc", None, nll.value, nll.low)
    second = replace(nll, seed=1, value=nll.value + 0.2)
    (variant,) = average_over_seeds([nll, second])
    assert variant.value == pytest.approx(nll.value + 0.1)
    assert variant.low < nll.value


@pytest.mark.slow
def test_weights_stay_float32_in_half_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Passes with the same weights are compared, not steps: a first step is as long for a gradient of mere rounding.
    found: list[tuple[float, float, float]] = []

    class Noted(trainer.PretrainingTrainer):
        def training_step(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Tensor:
            with torch.random.fork_rng(), torch.no_grad():
                whole = type(model)(model.config).train()
                whole.load_state_dict(model.state_dict())
                expected = whole(**inputs)
            loss = super().training_step(model, inputs, *args, **kwargs)
            size = expected.logits.double().square().mean().sqrt().item() / math.sqrt(len(expected.logits))
            found.append((loss.item(), expected.loss.item(), size))
            return loss

    monkeypatch.setattr(trainer, "PretrainingTrainer", Noted)
    run(tmp_path, replace(RECIPE, dropout=0.0, steps=3, evals=1, precision="bfloat16"))
    # A product adds variance unit**2: 7 per layer, 2 in the head; twice per loss, averaged over tokens. 4 deviations.
    products = 7 * 6 + 2
    deviation = unit(torch.bfloat16) * math.sqrt(2 * products)
    assert len(found) == 3
    for half, whole, size in found:
        assert half != whole
        assert abs(half - whole) < 4 * deviation * size, (half, whole, size)
    weights = load_file(tmp_path / MODEL / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float32}


def test_the_config_identifies_base_text_recipe_and_seed() -> None:
    found = trainer.training_config(TOKENIZER, TEXT, RECIPE, 3)
    assert {**found, "base": ""} == {"base": "", "data": TEXT.digest, "recipe": RECIPE.to_json(), "seed": 3}
    for other in (replace(RECIPE, size="small"), replace(RECIPE, architecture="ltg")):
        assert trainer.training_config(TOKENIZER, TEXT, other, 3)["base"] != found["base"]


@pytest.mark.parametrize("algorithm", first_fast(["optimizer", "masking"]))
def test_a_different_algorithm_is_rejected(
    algorithm: str, finished: tuple[Path, TrainingRecord], tmp_path: Path
) -> None:
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    file = tmp_path / MODEL / FILE
    pedigree = json.loads(file.read_text())
    del pedigree["recipe"][algorithm]
    file.write_text(json.dumps(pedigree))
    with pytest.raises(TrainError, match=f"holds a different training run: its {algorithm}"):
        run(tmp_path)


@pytest.mark.slow
def test_resuming_a_timed_training_keeps_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = replace(RECIPE, seconds=6.0)
    monkeypatch.setattr(trainer, "time_step", lambda *_: 1.0)
    with watched(Noted(), 5), pytest.raises(StoppedError):
        run(tmp_path, timed)
    monkeypatch.setattr(trainer, "time_step", lambda *_: 0.1)
    assert run(tmp_path, timed).steps == 6


def test_a_step_is_timed(tmp_path: Path) -> None:
    done = run(tmp_path, replace(RECIPE, seconds=0.01))
    assert done.steps == 1
