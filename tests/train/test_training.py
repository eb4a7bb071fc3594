"""Trained models in folders, and step times, log entries and timed checkpoints of trainings."""

import sys
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
from transformers import PreTrainedModel, TrainerCallback

from layerwise.data.splits import Splits
from layerwise.errors import CheckpointError, TrainError
from layerwise.plan import Plan
from layerwise.plan.schedule import GrowthSchedule, ModelCost, Phase
from layerwise.results.training_record import FILE, MODEL, TrainingRecord, find_trained_models
from layerwise.stack import load
from layerwise.train import training
from layerwise.train.load_trained import open_trained
from layerwise.train.measured import TimedCheckpoints
from layerwise.train.methods import Options, recipe
from layerwise.train.pretrain.curriculum import Batches, CurriculumPhase
from layerwise.train.recipe import GrowthExtension, Recipe, Settings, grown
from layerwise.train.sharding import check_sharding, with_units
from layerwise.train.trainer import PlanTrainer, positions
from layerwise.train.training import Base, train, trainer_of
from layerwise.train.training_log import Pace, find_peak, median_step_seconds, summarize_log, time_step
from rounding import realigned
from tier import first_fast
from train.kinds import Noted, StoppedError, watched
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
    with pytest.raises(CheckpointError, match=r"lacks 2 of the weights of layer_positions"):
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
    for variant, seed in (("b", 10), ("b", 2), ("a", 0)):
        (tmp_path / variant / f"seed-{seed}" / MODEL).mkdir(parents=True)
        (tmp_path / variant / f"seed-{seed}" / MODEL / FILE).write_text("{}")
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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr("layerwise.train.training_log.time.perf_counter", lambda: found.now)
    return found


ARGUMENTS = SimpleNamespace(
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    world_size=2,
    peak_flops=None,
    device=torch.device("cpu"),
)


def test_step_times_exclude_validation_and_saving(clock: Any) -> None:
    pace, state = Pace(), SimpleNamespace(global_step=3, total_flos=0)
    for seconds, event in ((5, "step_end"), (2, "step_end"), (100, "evaluate"), (40, "save"), (3, "step_end")):
        clock.now += seconds
        getattr(pace, f"on_{event}")(None, state, None)
    assert pace.taken == [2, 3], "the first step has no step before it"
    assert pace.notes(ARGUMENTS, state)["step_seconds"] == 2.5
    assert pace.taken == []
    assert pace.notes(ARGUMENTS, state).keys() == {"seconds", "peak_bytes"}


def test_log_entries_cover_the_steps_since_the_last_one(clock: Any) -> None:
    pace, state = (
        Pace(),
        SimpleNamespace(global_step=10, total_flos=500.0, log_history=[{"seconds": 100.0}, {"loss": 2.0}]),
    )
    pace.on_train_begin(None, state, None)
    for _ in range(3):
        for seconds, event in ((1, "step_begin"), (3, "step_end")):
            clock.now += seconds
            getattr(pace, f"on_{event}")(None, state, None)
        for _ in range(2):
            pace.count({"input_ids": torch.ones(4, 6), "attention_mask": torch.tensor([[1, 1, 1, 0, 0, 0]] * 4)})
        state.global_step += 1
    state.total_flos += 3 * 8_000
    notes = pace.notes(SimpleNamespace(**{**vars(ARGUMENTS), "peak_flops": 10_000.0}), state)
    assert notes["data_wait"] == 0.25
    assert notes["seconds"] == 100 + 3 * 4, "with those of the session before"
    assert notes["examples_per_second"] == 4 * 2 * 2 / 4
    assert notes["tokens_per_second"] == 12 * 2 * 2 / 4
    assert notes["mfu"] == pytest.approx(8_000 / (4 * 10_000 * 2))
    state.global_step += 1
    assert "mfu" not in pace.notes(ARGUMENTS, state)


@pytest.mark.parametrize(
    ("device", "half", "float32"),
    [
        ("NVIDIA H100 80GB HBM3", 989.4, 66.9),
        ("NVIDIA H100 PCIe", 756.0, 51.2),
        ("NVIDIA L4", 121.0, 30.3),
        ("NVIDIA L40S", 362.0, 91.6),
        ("NVIDIA L400", None, None),
    ],
)
def test_peak_performance_is_found_by_device_name(device: str, half: float | None, float32: float | None) -> None:
    found = [find_peak(device, precision) for precision in ("bfloat16", "float32")]
    assert found == [each and pytest.approx(each * 1e12) for each in (half, float32)]


def test_the_pace_of_a_phase_and_flops_count_what_ran() -> None:
    history = [{"step": step, "step_seconds": float(step)} for step in (2, 4, 6, 8)]
    history.append({"step": 6})
    assert median_step_seconds(history, 2, 6) == 5
    assert median_step_seconds(history, 0, 2) == 2
    assert median_step_seconds(history, 8, 12) is None
    assert summarize_log(history) == {"step_seconds": 5}

    stack = load(tiny_vit())
    batch = tiny_digits().collate([tiny_digits().train[0]])
    assert positions(stack.model.config, batch) == 5, "four patches and a token"
    assert positions(load(tiny_llama()).model.config, {"input_ids": batch["pixel_values"]}) == 64
    assert positions(stack.model.config, {}) == 0
    trainer = SimpleNamespace(stack=stack)
    counts = []
    for plan in ("0-2", "0 2", "0 1*4 2"):
        trainer._plans = [Plan.parse(plan)]
        counts.append(PlanTrainer.floating_point_ops(trainer, batch))  # type: ignore[arg-type]
    layer = 6 * 5 * sum(weight.numel() for weight in stack.block(1).parameters())
    assert counts[0] - counts[1] == layer
    assert counts[2] - counts[0] == 3 * layer


INTEGRATIONS = "transformers.integrations.integration_utils"


class Tracker(TrainerCallback):
    told: list[dict[str, float]]

    def __init__(self) -> None:
        Tracker.told = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        Tracker.told.append(dict(logs))


def test_trackers_receive_the_pace_and_are_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    wandb = SimpleNamespace(run=object(), finish=lambda: ended.append(1))
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setitem(sys.modules[INTEGRATIONS].INTEGRATION_TO_CALLBACK, "wandb", Tracker)
    settings = Settings(epochs=2, batch_size=8, evals=1)
    record = train(
        Base(lambda: load(tiny_llama()), "tiny"),
        tiny_text(longest=8),
        Recipe("plain", settings),
        1,
        tmp_path,
        arguments={"use_cpu": True, "report_to": ["wandb"], "peak_flops": 1e9},
    )
    told: dict[str, float] = {}
    for logs in Tracker.told:
        told |= logs
    pace = {"step_seconds", "data_wait", "examples_per_second", "tokens_per_second", "mfu", "peak_bytes"}
    assert pace <= told.keys()
    assert pace <= record.figures.keys()
    assert 0 < told["mfu"] < 1
    assert 0 <= told["data_wait"] < 1
    assert ended == [1]


STEPS = 24
SCHEDULE = GrowthSchedule("halves", 3, (Phase("low", 0.5, (0,)), Phase("all", 0.5, (0, 1, 2))))


class Seen(TrainerCallback):
    def __init__(self) -> None:
        self.steps: list[int] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.steps.append(state.global_step)


def making(seen: Seen, steps: int) -> Any:
    growth = GrowthExtension(SCHEDULE, steps, ModelCost((1.0,) * 3, 0.0, 1.0))
    recipe = grown(Settings(epochs=steps / 3, batch_size=8, evals=4), growth)

    def make(folder: Path, quiet: Any) -> Any:
        base = Base(lambda: load(tiny_llama(3)), "llama")
        trainer = trainer_of(base, tiny_text(), recipe, 0, folder, arguments={"use_cpu": True, **quiet})
        trainer.add_callback(seen)
        return trainer

    return make


@pytest.mark.parametrize("steps", [2, STEPS])
def test_the_first_step_is_not_timed(steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen = Seen()
    assert time_step(making(seen, steps)) > 0
    assert seen.steps == [0, 1]
    assert not list(tmp_path.iterdir())


def test_batches_of_selected_steps_match_the_training() -> None:
    phases = [CurriculumPhase(8, 4, 0, 45, 100), CurriculumPhase(32, 1, 45, 50, 40)]
    plain, chosen = (Batches(phases, seed=3, passes=1) for _ in range(2))
    chosen.steps = [*range(49, 0, -7), 0]
    every, some = list(plain), list(chosen)
    assert some == [every[step] for step in chosen.steps]
    assert {batch[0].length for batch in some} == {8, 32}


TIMED_SETTINGS = Settings(epochs=6, batch_size=8, evals=2, learning_rate=1e-2, gradient_accumulation_steps=2)
"""18 steps, validated after 9 and 18; losses are recorded every second."""


@pytest.fixture
def checkpoint_clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = SimpleNamespace(now=0.0)
    monkeypatch.setattr("layerwise.train.measured.time", SimpleNamespace(monotonic=lambda: found.now))
    own = PlanTrainer.training_step

    def stepping(self: PlanTrainer, *args: Any, **kwargs: Any) -> Any:
        found.now += 30
        return own(self, *args, **kwargs)

    monkeypatch.setattr(PlanTrainer, "training_step", stepping)
    return found


def trained(folder: Path, minutes: float | None = None) -> TrainingRecord:
    recipe = Recipe("plain", TIMED_SETTINGS)
    arguments = {"use_cpu": True, "checkpoint_minutes": minutes, "save_total_limit": 9}
    return train(Base(lambda: load(tiny_vit()), "tiny"), tiny_digits(train=24), recipe, 1, folder, arguments=arguments)


def test_resuming_between_log_entries_gives_the_same_record(checkpoint_clock: Any, tmp_path: Path) -> None:
    straight = trained(tmp_path / "straight")
    with watched(Noted(), 8), pytest.raises(StoppedError):
        trained(tmp_path / "stopped", minutes=7)
    assert [path.name for path in (tmp_path / "stopped").glob("checkpoint-*")] == ["checkpoint-7"]
    resumed = trained(tmp_path / "stopped", minutes=7)
    assert resumed.history == straight.history
    assert resumed.best_step == straight.best_step
    assert same_weights(saved_weights(tmp_path / "stopped"), saved_weights(tmp_path / "straight"))


def test_timed_checkpoints_and_validated_best_models(
    checkpoint_clock: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    own = PlanTrainer._save_checkpoint

    def noting(self: PlanTrainer, *args: Any) -> None:
        saved.append(self.state.global_step)
        own(self, *args)

    monkeypatch.setattr(PlanTrainer, "_save_checkpoint", noting)
    record = trained(tmp_path, minutes=4)
    assert saved == [4, 8, 9, 13, 17, 18]
    assert record.best_step in (9, 18)


def test_all_processes_save_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(value=0.0)
    monkeypatch.setattr("layerwise.train.measured.time", SimpleNamespace(monotonic=lambda: now.value))
    told: list[list[Any]] = []
    monkeypatch.setattr("layerwise.train.measured.broadcast_object_list", lambda news: told.append([*news]) or told[-1])
    callback, args = TimedCheckpoints(minutes=10), SimpleNamespace(world_size=2)
    state, control = SimpleNamespace(global_step=0), SimpleNamespace(should_save=False)
    callback.on_train_begin(args, state, control)
    while not control.should_save:
        now.value += 6
        state.global_step += 1
        callback.on_step_end(args, state, control)
    assert state.global_step == 100
    assert len(told) < 12, "a hundred steps, and few words"
