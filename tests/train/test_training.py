"""One training from beginning to end: stopped, killed, resumed, finished, opened again; and refused what is not its."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel, ViTForImageClassification

from apart import apart
from layerwise.data.splits import Splits
from layerwise.errors import CheckpointError, TrainError
from layerwise.plan import Plan
from layerwise.results.training_record import FILE, MODEL, TrainingRecord, trained_models
from layerwise.stack import load
from layerwise.train import training
from layerwise.train.checkpoint_dir import CONFIG
from layerwise.train.load_trained import open_trained
from layerwise.train.methods import Options, recipe
from layerwise.train.methods.layershuffle import PredictionOptions
from layerwise.train.recipe import Recipe, Settings
from layerwise.train.sharding import check_sharding, with_units
from layerwise.train.training import Base, train
from layerwise.train.variant import Variant
from rounding import realigned
from tier import first_fast
from train.tiny_models import same_weights, saved_weights, tiny_digits, tiny_llama, tiny_text, tiny_vit

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


class Stopped(Exception):
    """The machine was switched off."""


@pytest.fixture
def losses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The loss of every training pass, in order; raises `Stopped` before the pass that `stop_at` names."""
    found: list[float] = []

    class Noted(training.PlanTrainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            if self.state.global_step == _stop_at:
                raise Stopped
            loss = super().training_step(*args, **kwargs)
            found.append(loss.item())
            return loss

    monkeypatch.setattr(training, "PlanTrainer", Noted)
    return found


_stop_at: int | None = None


def _stopped_at(step: int, run: Callable[[], TrainingRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "_stop_at", step)
        with pytest.raises(Stopped):
            run()


def _base(make: Callable[[], PreTrainedModel] = tiny_vit) -> Base:
    return Base(lambda: load(make()), make.__name__)


def _vit_with_dropout() -> PreTrainedModel:
    return tiny_vit(dropout=0.1)


@pytest.mark.parametrize(
    ("method", "make", "splits"),
    [
        *(
            pytest.param(method, _vit_with_dropout, tiny_digits("crop"), marks=pytest.mark.slow, id=f"vit {method}")
            for method in METHODS
        ),
        pytest.param("layershuffle", tiny_llama, tiny_text(), id="llama layershuffle"),
    ],
)
def test_a_resumed_training_has_the_losses_of_one_without_a_stop(
    method: str,
    make: Callable[[], PreTrainedModel],
    splits: Splits,
    losses: list[float],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Checkpoints at steps 4 and 8, in the middle of epochs of 3 steps; stopped two passes after the first.
    chosen = recipe(method, Options(replace(SETTINGS, epochs=4, gradient_accumulation_steps=2)), DEPTH)

    def run(folder: Path) -> TrainingRecord:
        return train(_base(make), splits, chosen, 1, folder, arguments=QUIET)

    straight = run(tmp_path / "straight")
    whole, losses[:] = losses[:], []
    assert len(whole) == 2 * straight.steps == 24
    _stopped_at(6, lambda: run(tmp_path / "stopped"), monkeypatch)
    assert losses == whole[:12]
    losses.clear()
    resumed = run(tmp_path / "stopped")
    assert losses == whole[8:]
    assert resumed.figures.keys() == straight.figures.keys()
    assert replace(resumed, seconds=0, figures={}) == replace(straight, seconds=0, figures={})
    assert same_weights(saved_weights(tmp_path / "stopped"), saved_weights(tmp_path / "straight"))


def test_a_training_that_was_killed_before_its_model_was_written_takes_no_further_step(
    losses: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last step, and its checkpoint, lie within an epoch of three."""
    chosen = recipe("layershuffle", Options(replace(SETTINGS, epochs=4 / 3, evals=1)), DEPTH)

    def run() -> TrainingRecord:
        return train(_base(), tiny_digits("crop"), chosen, 1, tmp_path, arguments=QUIET)

    def killed(*_: object) -> None:
        raise Stopped

    with monkeypatch.context() as patch:
        patch.setattr(training.PlanTrainer, "write", killed)
        with pytest.raises(Stopped):
            run()
    steps = len(losses)
    assert (tmp_path / f"checkpoint-{steps}").is_dir()
    assert steps % 3 != 0
    assert run().steps == steps == len(losses)


@MODELS
def test_the_model_is_that_of_the_best_checkpoint(
    make: Callable[[], PreTrainedModel], splits: Splits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The validation loss is planted, so that the best checkpoint is neither the first nor the last."""
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


@MODELS
@torch.no_grad()
def test_what_is_saved_is_a_plain_model(make: Callable[[], PreTrainedModel], splits: Splits, tmp_path: Path) -> None:
    opened: list[PreTrainedModel] = []

    def opener() -> Any:
        opened.append(make())
        return load(opened[-1])

    with torch.enable_grad():
        train(Base(opener, "x"), splits, recipe("layershuffle", Options(SETTINGS), DEPTH), 1, tmp_path, arguments=QUIET)
    auto = ViTForImageClassification if make is tiny_vit else AutoModelForCausalLM
    plain, report = auto.from_pretrained(tmp_path / MODEL, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert list(plain.state_dict()) == list(make().state_dict())
    batch = splits.collate([splits.test[index] for index in range(4)])
    found = realigned(plain).eval()(**batch).logits
    assert torch.equal(found, opened[-1].eval()(**batch).logits)
    assert not torch.allclose(found, make()(**batch).logits)
    assert sorted(path.name for path in tmp_path.iterdir()) == [MODEL, CONFIG]


@pytest.mark.parametrize("method", first_fast(METHODS[::-1]))
@torch.no_grad()
def test_a_trained_model_opens_as_it_was_trained(method: str, tmp_path: Path) -> None:
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


def test_a_variant_without_its_weights_is_refused(tmp_path: Path) -> None:
    chosen = recipe("layershuffle-position", Options(SETTINGS), DEPTH)
    train(_base(), tiny_digits(), chosen, 1, tmp_path, arguments=QUIET)
    path = tmp_path / MODEL / "model.safetensors"
    kept = {name: tensor for name, tensor in load_file(path).items() if "projections.1" not in name}
    save_file(kept, path, metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"trained with layer_positions, but 2 of its weights are missing"):
        open_trained(tmp_path / MODEL, device="cpu")


def test_a_finished_training_is_not_repeated(losses: list[float], tmp_path: Path) -> None:
    chosen = recipe("layershuffle", Options(SETTINGS), DEPTH)
    first = train(_base(), tiny_digits(), chosen, 1, tmp_path, arguments=QUIET)
    assert len(losses) == 9
    assert len([moment for moment in first.history if moment.kind == "validation"]) == 3
    losses.clear()
    again = train(_base(), tiny_digits(), chosen, 1, tmp_path, arguments=QUIET)
    assert again == first
    assert losses == []


@pytest.mark.parametrize("name", ["recipe", "seed", "base", "data"])
@pytest.mark.parametrize("finished", [True, False], ids=["finished", "begun"])
def test_a_folder_of_another_training_is_refused(
    finished: bool, name: str, losses: list[float], tmp_path: Path
) -> None:
    chosen, splits = recipe("layershuffle", Options(SETTINGS), DEPTH), tiny_digits()
    asked: dict[str, Any] = {"recipe": chosen, "seed": 1, "base": _base(), "splits": splits}
    _begun(tmp_path, asked, finished)
    others = {
        "recipe": replace(chosen, settings=replace(SETTINGS, learning_rate=2e-2)),
        "seed": 2,
        "base": replace(_base(), weights="another"),
        "data": replace(splits, digest="another"),
    }
    changed = {**asked, "splits" if name == "data" else name: others[name]}
    said = {
        "recipe": "its learning_rate is 0.01, and 0.02 was asked for",
        "seed": "its seed is 1, and 2 was asked for",
        "base": "it begins from another model",
        "data": "it learns from other examples",
    }
    with pytest.raises(TrainError, match=f"holds another training: {said[name]}; choose another run folder"):
        train(folder=tmp_path, arguments=QUIET, **changed)
    assert losses == []


def _begun(folder: Path, asked: dict[str, Any], finished: bool) -> None:
    """A folder as a training leaves it, without the training."""
    record = {
        "base": asked["base"].weights, "data": asked["splits"].digest, "recipe": asked["recipe"].to_json(),
        "seed": asked["seed"],
    }  # fmt: skip
    if finished:
        (folder / MODEL).mkdir(parents=True)
        TrainingRecord(
            **record, arm="layershuffle", data_name="digits", steps=1, epochs=1, examples=1, seconds=1, best_step=1
        ).write(folder / MODEL)
    else:
        (folder / CONFIG).write_text(json.dumps(record))


def test_a_torn_checkpoint_is_passed_over(losses: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = recipe("layershuffle", Options(SETTINGS), DEPTH)
    run = lambda: train(_base(), tiny_digits(), chosen, 1, tmp_path, arguments=QUIET)  # noqa: E731
    _stopped_at(7, run, monkeypatch)
    before = losses[3:]
    assert {path.name for path in tmp_path.glob("checkpoint-*")} == {"checkpoint-3", "checkpoint-6"}
    (tmp_path / "checkpoint-6" / "trainer_state.json").unlink()
    losses.clear()
    assert run().steps == 9
    assert losses[:4] == before
    assert len(losses) == 6


def test_a_model_that_was_being_published_is_published_again(tmp_path: Path, losses: list[float]) -> None:
    chosen = recipe("layershuffle", Options(SETTINGS), DEPTH)
    (tmp_path / MODEL).mkdir()
    (tmp_path / MODEL / "model.safetensors").write_bytes(b"half")
    record = train(_base(), tiny_digits(), chosen, 1, tmp_path, arguments=QUIET)
    assert TrainingRecord.read(tmp_path / MODEL) == record
    published = ViTForImageClassification.from_pretrained(tmp_path / MODEL)
    assert published.state_dict().keys() == tiny_vit().state_dict().keys()


@pytest.mark.slow
def test_layers_from_scratch_begin_from_other_weights(losses: list[float], tmp_path: Path) -> None:
    settings = replace(SETTINGS, epochs=1, from_scratch_factor=1)
    for number, from_scratch in enumerate((False, True, True)):
        chosen = Recipe("any", settings, from_scratch=from_scratch)
        train(_base(), tiny_digits(), chosen, 1, tmp_path / str(number), arguments=QUIET)
    refined, scratch, again = losses[:3], losses[3:6], losses[6:]
    assert scratch == again
    assert refined[0] != scratch[0]


@pytest.mark.slow
def test_options_of_the_prediction_reach_the_training(losses: list[float], tmp_path: Path) -> None:
    base = recipe("layershuffle-predict", Options(replace(SETTINGS, epochs=1)), DEPTH)
    mean = replace(base, variant=PredictionOptions(total="mean"))
    for name, chosen in (("sum", base), ("mean", mean), ("plain", replace(base, variant=Variant()))):
        train(_base(), tiny_digits(), chosen, 1, tmp_path / name, arguments=QUIET)
    total, averaged, task = losses[0], losses[3], losses[6]
    assert averaged - task == pytest.approx((total - task) / DEPTH, rel=1e-4)


def test_texts_are_read_beside_texts_of_like_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_the_progress_is_told_step_by_step(tmp_path: Path) -> None:
    told: list[tuple[int, int, float | None]] = []
    train(
        _base(), tiny_digits(), recipe("sequential", Options(SETTINGS), DEPTH), 1, tmp_path, arguments=QUIET,
        progress=lambda *news: told.append(news),
    )  # fmt: skip
    assert [(step, steps) for step, steps, _ in told] == [(step, 9) for step in range(1, 10)]
    assert told[-1][2] is not None


def test_a_batch_that_does_not_fall_into_pieces_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    settings = replace(SETTINGS, batch_size=9, gradient_accumulation_steps=3)
    with monkeypatch.context() as patch:
        patch.setattr("accelerate.PartialState", lambda **_: type("Two", (), {"num_processes": 2})())
        with pytest.raises(TrainError, match="a batch of 9 does not fall into equal pieces for 2 processes x 3 passes"):
            train(_base(), tiny_digits(), recipe("sequential", Options(settings), DEPTH), 1, tmp_path, arguments=QUIET)


def test_trained_models_are_found_by_arm_and_seed(tmp_path: Path) -> None:
    for arm, seed in (("b", 10), ("b", 2), ("a", 0)):
        (tmp_path / arm / f"seed-{seed}" / MODEL).mkdir(parents=True)
        (tmp_path / arm / f"seed-{seed}" / MODEL / FILE).write_text("{}")
    (tmp_path / "c" / "seed-0" / MODEL).mkdir(parents=True)
    found = [path.relative_to(tmp_path).parts[:2] for path in trained_models(tmp_path)]
    assert found == [("a", "seed-0"), ("b", "seed-2"), ("b", "seed-10")]


def train_and_be_killed(folder: Path) -> None:
    """The process kills itself behind the eighth step."""

    def told(step: int, *_: object) -> None:
        if step == 8:
            os.kill(os.getpid(), signal.SIGKILL)

    chosen = recipe("layershuffle", Options(SETTINGS), DEPTH)
    train(_base(), tiny_digits("crop"), chosen, 1, folder, arguments=QUIET, progress=told)


@pytest.mark.slow
def test_killed_without_warning_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    chosen = recipe("layershuffle", Options(SETTINGS), DEPTH)
    whole = train(_base(), tiny_digits("crop"), chosen, 1, straight, arguments=QUIET)
    assert apart(train_and_be_killed, killed).code == -signal.SIGKILL
    assert not (killed / MODEL).exists()
    assert (killed / "checkpoint-6").is_dir()
    resumed = train(_base(), tiny_digits("crop"), chosen, 1, killed, arguments=QUIET)
    assert resumed.figures.keys() == whole.figures.keys()
    assert replace(resumed, seconds=0, figures={}) == replace(whole, seconds=0, figures={})
    assert same_weights(saved_weights(killed), saved_weights(straight))
    shutil.rmtree(killed)


def test_sharding_without_an_accelerator_is_refused_and_not_passed_over() -> None:
    """accelerate 1.15 shards over accelerators, and without one trains whole copies without a word."""
    stack = load(tiny_vit(DEPTH))
    given = with_units({"fsdp": True}, [stack.block(0)])
    assert given == {"fsdp": True, "fsdp_config": {"transformer_layer_cls_to_wrap": ["ViTLayer"]}}
    other = {"fsdp": True, "fsdp_config": {"min_num_params": 7}}
    assert with_units(other, [stack.block(0)]) == other
    assert with_units({"fsdp": ""}, [stack.block(0)]) == {"fsdp": ""}
    trainer = SimpleNamespace(args=SimpleNamespace(fsdp=True), is_fsdp_enabled=False)
    with pytest.raises(TrainError, match="each process here would hold all of it"):
        check_sharding(trainer)
    trainer.is_fsdp_enabled = True
    check_sharding(trainer)
    with pytest.raises(TrainError, match="--drop-sync shared"):
        check_sharding(trainer, per_rank=True)
