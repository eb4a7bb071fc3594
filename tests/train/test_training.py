"""A full training, its model and its errors."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from layerwise.data.splits import Splits
from layerwise.errors import CheckpointError, TrainError
from layerwise.plan import Plan
from layerwise.results.training_record import FILE, MODEL, TrainingRecord, find_trained_models
from layerwise.stack import load
from layerwise.train import training
from layerwise.train.load_trained import open_trained
from layerwise.train.methods import Options, recipe
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.sharding import check_sharding, with_units
from layerwise.train.training import Base, train
from rounding import realigned
from tier import first_fast
from train.kinds import Noted, StoppedError, watched
from train.tiny_models import same_weights, tiny_digits, tiny_llama, tiny_text, tiny_vit

DEPTH = 3
QUIET: dict[str, Any] = {"use_cpu": True}
SETTINGS = Settings(epochs=3, batch_size=8, evals=3, learning_rate=1e-2, schedule="linear", warmup=0.2)
METHODS = ("layershuffle", "layershuffle-position", "layershuffle-predict")
PIXELS = torch.randn(3, 1, 8, 8, generator=torch.Generator().manual_seed(0))
MODELS = pytest.mark.parametrize(
    ("make", "splits"),
    [
        pytest.param(tiny_vit, tiny_digits(), id="vit"),
        pytest.param(tiny_llama, tiny_text(), marks=pytest.mark.slow, id="llama"),
    ],
)
PLANS = [Plan.parse(text) for text in ("0-2", "2 0 1", "1 2")]


def _base(make: Callable[[], PreTrainedModel] = tiny_vit) -> Base:
    return Base(lambda: load(make()), make.__name__)


def test_a_base_that_is_a_file_has_no_preprocessing(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF")
    chosen = recipe("layershuffle", Options(replace(SETTINGS, epochs=1 / 3, evals=1)), DEPTH)
    base = replace(_base(), location=str(file))
    record = train(base, tiny_digits("crop"), chosen, 1, tmp_path / "run", arguments=QUIET)
    assert record.steps == 1
    assert (tmp_path / "run" / MODEL / "config.json").is_file()
    assert not list((tmp_path / "run" / MODEL).glob("preprocessor*"))


def test_a_training_killed_before_saving_takes_no_further_step(tmp_path: Path) -> None:
    chosen, noted = recipe("layershuffle", Options(replace(SETTINGS, epochs=4 / 3, evals=1)), DEPTH), Noted()

    def run() -> TrainingRecord:
        with watched(noted):
            return train(_base(), tiny_digits("crop"), chosen, 1, tmp_path, arguments=QUIET)

    with patch.object(training.PlanTrainer, "write", side_effect=StoppedError), pytest.raises(StoppedError):
        run()
    steps = len(noted.losses)
    assert (tmp_path / f"checkpoint-{steps}").is_dir()
    assert steps % 3 != 0
    assert run().steps == steps == len(noted.losses)


@MODELS
def test_the_best_checkpoint_is_saved(
    make: Callable[[], PreTrainedModel], splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: dict[int, dict[str, Tensor]] = {}

    class Planted(training.PlanTrainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            step = self.state.global_step
            kept[step] = {name: tensor.clone() for name, tensor in self.stack.model.state_dict().items()}
            found = super().evaluate(*args, **kwargs)
            return {**found, "eval_loss": abs(step - 6.0)}

    monkeypatch.setattr(training, "PlanTrainer", Planted)
    chosen = recipe("layershuffle", Options(SETTINGS), DEPTH)
    record = train(_base(make), splits, chosen, 1, tmp_path, arguments=QUIET)
    assert (record.steps, record.best_step, sorted(kept)) == (9, 6, [3, 6, 9])
    saved = type(make()).from_pretrained(tmp_path / MODEL).state_dict()
    assert same_weights(saved, kept[6])
    assert not same_weights(saved, kept[9])


@pytest.mark.parametrize("method", first_fast(METHODS[::-1]))
@torch.no_grad()
def test_trained_models_load_with_their_variant(method: str, tmp_path: Path) -> None:
    opened = []

    def opener() -> Any:
        opened.append(load(tiny_vit()))
        return opened[-1]

    chosen = recipe(method, Options(SETTINGS), DEPTH)
    with torch.enable_grad():
        record = train(Base(opener, "x"), tiny_digits(), chosen, 1, tmp_path, arguments=QUIET)
    found, trained = open_trained(tmp_path / MODEL, device="cpu"), opened[-1]
    realigned(found.stack.model)
    assert found.record == record
    assert (found.prediction is not None) == (method == "layershuffle-predict")
    assert set(found.stack.model.state_dict()) == set(trained.model.state_dict())
    trained.model.eval()
    told = []
    for plan in PLANS:
        logits = []
        for stack in (found.stack, trained):
            with stack.under(plan, single_pass=True):
                logits.append(stack.model(pixel_values=PIXELS).logits)
        assert torch.equal(*logits)
        told.append(logits[0])
        if found.prediction is not None:
            added = trained.model.get_submodule("layer_predictions")
            assert float(found.prediction.loss()) == float(added.loss())
    assert not torch.allclose(told[0], told[1])


def test_variants_without_their_weights_are_rejected(tmp_path: Path) -> None:
    chosen = recipe("layershuffle-position", Options(SETTINGS), DEPTH)
    train(_base(), tiny_digits(), chosen, 1, tmp_path, arguments=QUIET)
    path = tmp_path / MODEL / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(path).items() if "projections.1" not in name}
    save_file(kept, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"trained with layer_positions, but lacks 2 of its weights"):
        open_trained(tmp_path / MODEL, device="cpu")


def _losses(chosen: Recipe, folder: Path) -> list[float]:
    noted = Noted()
    with watched(noted):
        train(_base(), tiny_digits(), chosen, 1, folder, arguments=QUIET)
    return noted.losses


@pytest.mark.slow
def test_training_from_scratch_reinitializes_layers(tmp_path: Path) -> None:
    settings = replace(SETTINGS, epochs=1, from_scratch_factor=1)
    refined, scratch, again = (
        _losses(Recipe("any", settings, from_scratch=from_scratch), tmp_path / str(number))
        for number, from_scratch in enumerate((False, True, True))
    )
    assert scratch == again
    assert refined[0] != scratch[0]


def test_texts_are_grouped_by_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    padding: list[float] = []

    class Noted(training.PlanTrainer):
        def training_step(self, model: Any, inputs: Any, *rest: Any) -> Tensor:
            padding.append(1 - inputs["attention_mask"].float().mean().item())
            return super().training_step(model, inputs, *rest)

    monkeypatch.setattr(training, "PlanTrainer", Noted)
    texts = tiny_text(train=32, shortest=2, longest=9)
    train(_base(tiny_llama), texts, recipe("layershuffle", Options(SETTINGS), DEPTH), 1, tmp_path, arguments=QUIET)
    assert len(padding) == 12
    assert max(padding) < 0.35, "four lengths of two a batch, from 2 and 3 words on, leave at most a sixth empty"


def test_progress_is_reported_per_step(tmp_path: Path) -> None:
    told: list[tuple[int, int, float | None]] = []
    train(
        _base(),
        tiny_digits(),
        recipe("sequential", Options(SETTINGS), DEPTH),
        1,
        tmp_path,
        arguments=QUIET,
        progress=lambda *news: told.append(news),
    )
    assert [(step, steps) for step, steps, _ in told] == [(step, 9) for step in range(1, 10)]
    assert told[-1][2] is not None


def test_batch_sizes_that_do_not_divide_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    settings = replace(SETTINGS, batch_size=9, gradient_accumulation_steps=3)
    with monkeypatch.context() as replaced:
        replaced.setattr(training, "PartialState", lambda **_: type("Two", (), {"num_processes": 2})())
        with pytest.raises(TrainError, match="batch_size must be a multiple of 6 \(2 processes x 3 passes\), got 9"):
            train(_base(), tiny_digits(), recipe("sequential", Options(settings), DEPTH), 1, tmp_path, arguments=QUIET)


def test_trained_models_are_found_by_variant_and_seed(tmp_path: Path) -> None:
    for arm, seed in (("b", 10), ("b", 2), ("a", 0)):
        (tmp_path / arm / f"seed-{seed}" / MODEL).mkdir(parents=True)
        (tmp_path / arm / f"seed-{seed}" / MODEL / FILE).write_text("{}")
    (tmp_path / "c" / "seed-0" / MODEL).mkdir(parents=True)
    found = [path.relative_to(tmp_path).parts[:2] for path in find_trained_models(tmp_path)]
    assert found == [("a", "seed-0"), ("b", "seed-2"), ("b", "seed-10")]


def test_sharding_requires_accelerators() -> None:
    stack = load(tiny_vit(DEPTH))
    given = with_units({"fsdp": True}, [stack.block(0)])
    assert given == {"fsdp": True, "fsdp_config": {"transformer_layer_cls_to_wrap": ["ViTLayer"]}}
    other = {"fsdp": True, "fsdp_config": {"min_num_params": 7}}
    assert with_units(other, [stack.block(0)]) == other
    assert with_units({"fsdp": ""}, [stack.block(0)]) == {"fsdp": ""}
    trainer = SimpleNamespace(args=SimpleNamespace(fsdp=True), is_fsdp_enabled=False)
    with pytest.raises(TrainError, match="requires several accelerators"):
        check_sharding(trainer)
    trainer.is_fsdp_enabled = True
    check_sharding(trainer)
    with pytest.raises(TrainError, match="--drop-sync shared"):
        check_sharding(trainer, per_rank=True)
