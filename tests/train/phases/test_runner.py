"""Growth trainings: frozen and trained weights, resumption and errors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel, TrainerCallback

from layerwise.data.splits import Splits
from layerwise.errors import PlanError, TrainError
from layerwise.measure.cost.flops import model_cost
from layerwise.plan.samplers import Drop
from layerwise.plan.schedule import GrowthSchedule, Phase
from layerwise.plan.schedule.cost import ModelCost, flops_per_token
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.stack import load
from layerwise.stack.weights import make_random_init
from layerwise.train import training
from layerwise.train.checkpoint_dir import CONFIG
from layerwise.train.methods import Options, recipe
from layerwise.train.phases.runner import GrowthTrainer, seed_of
from layerwise.train.phases.step_schedule import StepSchedule
from layerwise.train.recipe import GrowthExtension, Recipe, Settings, grown
from layerwise.train.trainer import PlanTrainer
from layerwise.train.training import Base, train
from train.kinds import StoppedError, eventful
from train.tiny_models import same_weights, saved_weights, tied_llama, tiny_digits, tiny_llama, tiny_text, tiny_vit

DEPTH = 3
STEPS = 12
QUIET: dict[str, Any] = {"use_cpu": True}
SETTINGS = Settings(
    epochs=4, batch_size=8, evals=1, learning_rate=1e-2, schedule="cosine", warmup=0.2, weight_decay=0.1
)
COST = ModelCost((3.0, 3.0, 3.0), embedding=0.0, head=1.0)
ALL = (0, 1, 2)
EVERYTHING = GrowthSchedule("everything", DEPTH, (Phase("all", 1.0, ALL),))
EVENTFUL = eventful(DEPTH)


class Seen(TrainerCallback):
    """Losses, layers that ran, and weights before and after each step; training is killed before the step `stop`."""

    def __init__(self, stop: int | None = None) -> None:
        self.stop = stop
        self.losses: list[float] = []
        self.before: dict[int, dict[str, Tensor]] = {}
        self.after: dict[int, dict[str, Tensor]] = {}
        self.moments: dict[int, set[str]] = {}
        self.rates: dict[int, float] = {}
        self.ran: dict[int, list[int]] = {}
        self.log: list[dict[str, Any]] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        model = model.module if hasattr(model, "module") else model
        blocks = model.vit.layers if hasattr(model, "vit") else model.model.layers
        for layer, block in enumerate(blocks):
            block.register_forward_hook(
                lambda *_, layer=layer: (
                    self.ran.setdefault(state.global_step, []).append(layer) if model.training else None
                )
            )

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        self.after[state.global_step - 1] = weights_of(model)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.log = state.log_history


@contextmanager
def watched(seen: Seen, name: str = "GrowthTrainer") -> Iterator[None]:
    parent = getattr(training, name)

    class Noted(parent):  # type: ignore[misc]
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.add_callback(seen)

        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            step = self.state.global_step
            if step == seen.stop:
                raise StoppedError
            if step not in seen.before:
                seen.before[step] = weights_of(self.stack.model)
                moments = self.optimizer.state
                named = self.stack.model.named_parameters()
                seen.moments[step] = {name for name, weight in named if weight in moments}
                seen.rates[step] = self.optimizer.param_groups[0]["lr"]
            loss: Tensor = super().training_step(*args, **kwargs)
            seen.losses.append(loss.item())
            return loss

    with patch.object(training, name, Noted):
        yield


def weights_of(model: Any) -> dict[str, Tensor]:
    return {name: weight.detach().clone() for name, weight in model.named_parameters()}


def base(make: Callable[[], PreTrainedModel] = tiny_llama) -> Base:
    return Base(lambda: load(make()), make.__name__)


def vit_with_dropout() -> PreTrainedModel:
    return tiny_vit(dropout=0.1)


def recipe_of(schedule: GrowthSchedule, settings: Settings = SETTINGS, steps: int = STEPS) -> Recipe:
    return grown(settings, GrowthExtension(schedule, steps, COST))


def run(
    schedule: GrowthSchedule,
    folder: Path,
    seen: Seen | None = None,
    *,
    settings: Settings = SETTINGS,
    make: Callable[[], PreTrainedModel] = tiny_llama,
    splits: Splits | None = None,
    **options: Any,
) -> TrainingRecord:
    with watched(seen or Seen()):
        return train(
            base(make), splits or tiny_text(), recipe_of(schedule, settings), 1, folder, arguments={**QUIET, **options}
        )


@pytest.mark.parametrize(
    ("make", "splits", "settings"),
    [
        pytest.param(*each, id=name, marks=[] if name == "llama accumulated" else [pytest.mark.slow])
        for name, each in {
            "llama accumulated": (tiny_llama, tiny_text(), replace(SETTINGS, gradient_accumulation_steps=2, evals=3)),
            "vit with dropout": (vit_with_dropout, tiny_digits("crop"), replace(SETTINGS, augmentation="crop")),
            "llama in half precision": (
                tiny_llama,
                tiny_text(shortest=2),
                replace(SETTINGS, schedule="linear", precision="bfloat16", gradient_checkpointing=True),
            ),
        }.items()
    ],
)
def test_a_single_phase_matches_the_plain_trainer_exactly(
    make: Callable[[], PreTrainedModel], splits: Splits, settings: Settings, tmp_path: Path
) -> None:
    ours, theirs = Seen(), Seen()
    record = run(EVERYTHING, tmp_path / "grown", ours, settings=settings, make=make, splits=splits)
    with watched(theirs, "PlanTrainer"):
        plain = train(
            base(make), splits, recipe("sequential", Options(settings), DEPTH), 1, tmp_path / "plain", arguments=QUIET
        )
    assert len(ours.losses) == STEPS * settings.gradient_accumulation_steps
    assert ours.losses == theirs.losses
    assert ours.rates == theirs.rates
    assert [moment for moment in record.history if moment.kind == "validation"] == [
        moment for moment in plain.history if moment.kind == "validation"
    ]
    assert all(same_weights(ours.after[step], theirs.after[step]) for step in range(STEPS))


def learning_names(model: PreTrainedModel, phase: Phase, learning: tuple[int, ...]) -> set[str]:
    found = set()
    for name, _ in model.named_parameters():
        parts = name.split(".")
        if "layers" in parts:
            learns = int(parts[parts.index("layers") + 1]) in learning
        else:
            learns = phase.embedding if "embed" in name else phase.head
        found |= {name} if learns else set()
    return found


@pytest.mark.parametrize(
    ("make", "splits"),
    [
        pytest.param(tiny_llama, tiny_text(), id="llama"),
        pytest.param(tiny_vit, tiny_digits(), marks=pytest.mark.slow, id="vit"),
    ],
)
def test_frozen_weights_are_unchanged(make: Callable[[], PreTrainedModel], splits: Splits, tmp_path: Path) -> None:
    schedule = GrowthSchedule(
        "waves",
        DEPTH,
        (
            Phase("all", 0.25, ALL),
            Phase("middle", 0.25, (1,), embedding=False, head=False),
            Phase("drawn", 0.25, ALL, sample=1, every=2),
            Phase("around", 0.25, (), embedding=True, head=False),
        ),
    )
    seen = Seen()
    settings = replace(SETTINGS, gradient_accumulation_steps=2, warmup=0.0, schedule="constant")
    with watched(seen):
        chosen = recipe_of(schedule, settings, steps=16)
        train(base(make), splits, chosen, 1, tmp_path, arguments=QUIET)
    table = StepSchedule(schedule, 16, 1)
    for step in range(16):
        changed = {
            name for name, tensor in seen.before[step].items() if not torch.equal(tensor, seen.after[step][name])
        }
        assert changed == learning_names(make(), table.phase(step), table.learning(step)), step


TWO_PASSES = replace(SETTINGS, gradient_accumulation_steps=2)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Seen, TrainingRecord]:
    folder, seen = tmp_path_factory.mktemp("straight"), Seen()
    return folder, seen, run(EVENTFUL, folder, seen, settings=TWO_PASSES)


def layer_of(weights: dict[str, Tensor], layer: int) -> dict[str, Tensor]:
    mark = f".layers.{layer}."
    return {name.partition(mark)[2]: tensor for name, tensor in weights.items() if mark in name}


def test_each_phase_is_prepared_once(straight: tuple[Path, Seen, TrainingRecord]) -> None:
    _, seen, _ = straight
    old, new = seen.after[2], seen.before[3]
    assert same_weights(layer_of(new, 2), layer_of(old, 1)), "copied, as it was before it was scaled"
    fresh = make_random_init(load(tiny_llama()), seed_of(1, EVENTFUL.phases[1])).model
    assert same_weights(layer_of(new, 0), layer_of(weights_of(fresh), 0)), "drawn anew"
    for name, tensor in layer_of(old, 1).items():
        assert torch.equal(layer_of(new, 1)[name], tensor * 0.5 if tensor.ndim > 1 else tensor), name
    around = {name for name in old if ".layers." not in name}
    assert all(torch.equal(new[name], old[name]) for name in around)
    for step in (1, 2, 4, 5, 6, 7, 8, 9, 10, 11):
        assert same_weights(seen.before[step], seen.after[step - 1]), f"nothing is done at step {step}"


def test_layers_are_copied_as_before_the_phase(tmp_path: Path) -> None:
    copies = ((0, 2), (1, 0), (2, 1))
    schedule = GrowthSchedule("round", DEPTH, (Phase("all", 0.5, ALL), Phase("turned", 0.5, ALL, copies=copies)))
    seen = Seen()
    run(schedule, tmp_path, seen)
    for layer, source in copies:
        assert same_weights(layer_of(seen.before[6], layer), layer_of(seen.after[5], source))


def test_optimizer_moments_are_kept_or_reset(straight: tuple[Path, Seen, TrainingRecord]) -> None:
    _, seen, _ = straight
    layers = {number: {f"model.layers.{number}.{name}" for name in layer_of(seen.before[0], number)} for number in ALL}
    embedding, head = {"model.embed_tokens.weight"}, {"model.norm.weight", "lm_head.weight"}
    assert seen.moments[0] == set()
    assert seen.moments[3] == layers[1], "kept, and new weights have none"
    # Weights that learned in the second phase have moments, even if some passes left them out.
    assert embedding | head <= seen.moments[5]
    assert seen.moments[6] == head, "the third drops those of all that may learn in it, and the head rests"
    drawn = StepSchedule(EVENTFUL, STEPS, 1).learning(6)
    assert seen.moments[7] == head | embedding | layers[drawn[0]]
    assert seen.moments[9] == seen.moments[8] - layers[1] - layers[2] - head


def test_absent_layers_do_not_run(straight: tuple[Path, Seen, TrainingRecord]) -> None:
    _, seen, _ = straight
    assert [seen.ran[step] for step in range(3)] == [[0, 1, 0, 1]] * 3
    table = StepSchedule(EVENTFUL, STEPS, 1)
    for step in range(3, 9):
        assert seen.ran[step] == [layer for number in (0, 1) for layer in table.resolve(step, number).running(DEPTH)]
    assert any(len(seen.ran[step]) < 6 for step in range(3, 6)), "some were left out by chance"


def test_validation_uses_the_layers_of_the_last_phase(tmp_path: Path) -> None:
    schedule = GrowthSchedule("two", DEPTH, (Phase("shallow", 0.5, (0, 1), present=(0, 1)), Phase("all", 0.5, ALL)))
    seen = Seen()
    record = run(schedule, tmp_path, seen, settings=replace(SETTINGS, evals=2))
    found = {moment.step: moment.loss for moment in record.history if moment.kind == "validation"}
    splits = tiny_text()
    batch = splits.collate([splits.validation[number] for number in range(len(splits.validation))])
    for step, layers in ((6, 2), (12, 3)):
        model = tiny_llama()
        model.load_state_dict(seen.after[step - 1], strict=False)
        model.model.layers = model.model.layers[:layers]
        model.config.num_hidden_layers = layers
        with torch.no_grad():
            assert found[step] == pytest.approx(model(**batch).loss.item(), rel=1e-5)


def test_learning_rates_follow_the_phases(straight: tuple[Path, Seen, TrainingRecord], tmp_path: Path) -> None:
    _, seen, _ = straight
    plain = Seen()
    run(EVERYTHING, tmp_path, plain, settings=TWO_PASSES)
    rate = SETTINGS.learning_rate
    assert [seen.rates[step] for step in range(3)] == pytest.approx([0.0, rate, rate / 2])
    assert [seen.rates[step] for step in range(3, 6)] == [plain.rates[step] * 0.5 for step in range(3, 6)]
    assert [seen.rates[step] for step in range(6, 9)] == [plain.rates[step] for step in range(6, 9)]
    assert [seen.rates[step] for step in range(9, 12)] == pytest.approx([rate, 0.75 * rate, 0.25 * rate])


def measured_shares(phases: tuple[Phase, ...], tmp_path: Path) -> tuple[list[float], list[float]]:
    cost = model_cost(load(tiny_llama()), 6)
    schedule = GrowthSchedule("any", DEPTH, tuple(replace(phase, share=1 / len(phases)) for phase in phases))
    counted: dict[int, int] = {}

    class Counting(GrowthTrainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
                loss = super().training_step(*args, **kwargs)
            counted[self.state.global_step] = counter.get_total_flops()
            return loss

    chosen = grown(SETTINGS, GrowthExtension(schedule, 3 * len(phases), cost))
    with patch.object(training, "GrowthTrainer", Counting):
        train(base(), tiny_text(), chosen, 1, tmp_path, arguments=QUIET)
    measured = [counted[3 * number + 2] / counted[2] for number in range(len(phases))]
    return measured, [flops_per_token(phase, cost) / (3 * cost.total) for phase in phases]


@pytest.mark.slow
def test_no_gradients_are_computed_below_the_first_trainable_layer(tmp_path: Path) -> None:
    phases = (
        Phase("uniform", 1, ALL),
        Phase("top", 1, (2,), embedding=False),
        Phase("bottom", 1, (0,), embedding=False, head=False),
        Phase("embedding", 1, (), head=False),
        Phase("head", 1, (), embedding=False),
        Phase("shallow", 1, (0, 1), present=(0, 1)),
        Phase("whole", 1, ALL),
    )
    settings = replace(SETTINGS, batch_size=24)  # every example is read in every step
    with patch(f"{__name__}.SETTINGS", settings):
        measured, predicted = measured_shares(phases, tmp_path)
    # Frozen attention still needs both halves of its backward pass: 9 % of a layer here.
    assert measured == pytest.approx(predicted, abs=0.03)
    assert measured[0] == measured[-1] == 1
    assert measured[1] < 0.6


def test_flops_and_tokens_are_summed_over_resumptions(tmp_path: Path) -> None:
    schedule = GrowthSchedule(
        "drawn", DEPTH, (Phase("drop", 0.5, ALL, drop=(0.1, 0.8)), Phase("top", 0.5, (2,), embedding=False))
    )
    with pytest.raises(StoppedError):
        run(schedule, tmp_path, Seen(8), save_steps=3)
    seen = Seen()
    record = run(schedule, tmp_path, seen, save_steps=3)
    table = StepSchedule(schedule, STEPS, 1)
    tokens = 8 * 6
    assert record.figures["tokens"] == STEPS * tokens
    assert record.figures["flops"] == sum(
        round(flops_per_token(table.resolve(step), COST) * tokens) for step in range(STEPS)
    )
    means = [flops_per_token(table.phase(step), COST) * tokens for step in range(STEPS)]
    assert abs(record.figures["flops"] - sum(means)) > 1, "what was drawn is counted, and not the mean"
    assert record.figures["parameters"] == sum(weight.numel() for weight in tiny_llama().parameters())
    assert record.figures["step_seconds"] > 0
    assert record.figures["peak_bytes"] > 0


def test_the_log_has_the_phase(tmp_path: Path) -> None:
    seen = Seen()
    schedule = GrowthSchedule("two", DEPTH, (Phase("first", 5 / 12, ALL), Phase("second", 7 / 12, (2,))))
    record = run(schedule, tmp_path, seen, settings=replace(SETTINGS, evals=1), logging_steps=3)
    notes = [(entry["step"], entry["phase"]) for entry in seen.log if "loss" in entry]
    assert notes == [(3, "first"), (5, "first"), (6, "second"), (9, "second"), (12, "second")]
    operations = [entry["flops"] for entry in seen.log if "loss" in entry]
    assert operations == sorted(operations)
    assert operations[-1] == record.figures["flops"]
    assert {"step_seconds first", "step_seconds second"} <= set(record.figures)


def test_padding_counts_as_compute_but_not_as_tokens(tmp_path: Path) -> None:
    record = run(EVERYTHING, tmp_path, splits=tiny_text(shortest=2, longest=6))
    lengths = [2 + number % 5 for number in range(24)]
    assert record.figures["tokens"] == 4 * sum(lengths)
    assert record.figures["flops"] > record.figures["tokens"] * flops_per_token(EVERYTHING.phases[0], COST)


def test_the_last_model_is_saved(tmp_path: Path) -> None:
    seen = Seen()

    class Planted(GrowthTrainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            return {**super().evaluate(*args, **kwargs), "eval_loss": abs(self.state.global_step - 8.0)}

    with patch.object(training, "GrowthTrainer", Planted), watched(seen):
        chosen = recipe_of(EVENTFUL, replace(SETTINGS, evals=3))
        record = train(base(), tiny_text(), chosen, 1, tmp_path, arguments=QUIET)
    assert (record.steps, record.best_step) == (STEPS, STEPS)
    assert same_weights(saved_weights(tmp_path), seen.after[STEPS - 1])
    assert sorted(path.name for path in tmp_path.iterdir()) == [MODEL, CONFIG]


def test_the_model_is_restored_after_training(tmp_path: Path) -> None:
    opened: list[PreTrainedModel] = []

    def opener() -> Any:
        model = tiny_llama()
        model.model.norm.weight.requires_grad_(False)
        opened.append(model)
        return load(model)

    schedule = GrowthSchedule("two", DEPTH, (Phase("all", 0.5, ALL), Phase("head", 0.5, (), embedding=False)))
    train(Base(opener, "x"), tiny_text(), recipe_of(schedule), 1, tmp_path, arguments=QUIET)
    resting = {name for name, weight in opened[0].named_parameters() if not weight.requires_grad}
    assert resting == {"model.norm.weight"}, "what could not learn before was never let learn"
    assert torch.equal(opened[0].model.norm.weight, tiny_llama().model.norm.weight)
    assert not any(block._forward_pre_hooks for block in opened[0].model.layers)


def unlike_llama() -> PreTrainedModel:
    model = tiny_llama()
    model.model.layers[2].mlp.up_proj = torch.nn.Linear(16, 24)
    return model


REFUSED: dict[str, tuple[tuple[Phase, ...], Callable[[], PreTrainedModel], str]] = {
    "tied": (
        (Phase("all", 0.5, ALL), Phase("upper", 0.5, (2,), embedding=False)),
        tied_llama,
        "phase upper trains the head and freezes the embedding, but in .* they share model.embed_tokens.weight",
    ),
    "tied the other way": (
        (Phase("lower", 1.0, (0,), head=False),),
        tied_llama,
        "phase lower trains the embedding and freezes the head",
    ),
    "unlike layers": (
        (Phase("half", 0.5, (0, 1), present=(0, 1)), Phase("all", 0.5, ALL, copies=((2, 1),))),
        unlike_llama,
        "phase all: layer 2 cannot copy layer 1",
    ),
    "another depth": (
        (Phase("all", 1.0, ALL),),
        lambda: tiny_llama(4),
        "the schedule any is for a model of 3 layers, but this one has 4",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_phases_that_the_model_does_not_support_are_rejected(name: str, tmp_path: Path) -> None:
    phases, make, message = REFUSED[name]
    seen = Seen()
    with pytest.raises((TrainError, PlanError), match=message):
        run(GrowthSchedule("any", DEPTH, phases), tmp_path / "run", seen, make=make)
    assert not seen.losses
    assert not (tmp_path / "run" / CONFIG).exists(), "the folder is free for the schedule that is written next"


def test_tied_weights_are_trained_together(tmp_path: Path) -> None:
    both = GrowthSchedule(
        "both", DEPTH, (Phase("all", 0.5, ALL), Phase("neither", 0.5, (1,), embedding=False, head=False))
    )
    seen = Seen()
    run(both, tmp_path, seen, make=tied_llama, settings=replace(SETTINGS, warmup=0.0))
    name = "model.embed_tokens.weight"
    assert not torch.equal(seen.before[0][name], seen.after[5][name])
    assert torch.equal(seen.before[6][name], seen.after[11][name])


def test_samplers_and_schedules_without_support_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TrainError, match="must be linear, cosine or constant if there are phases"):
        run(EVENTFUL, tmp_path, lr_scheduler_type="reduce_lr_on_plateau")

    growth = GrowthExtension(EVERYTHING, 12, COST)
    with pytest.raises(TrainError, match=r"a growth schedule cannot be combined with a sampler"):
        Recipe("any", SETTINGS, Drop(0.5), extension=growth)

    begun = PlanTrainer.__init__

    def sharded(self: PlanTrainer, *args: Any, **options: Any) -> None:
        begun(self, *args, **options)
        self.is_deepspeed_enabled = True

    monkeypatch.setattr(PlanTrainer, "__init__", sharded)
    with pytest.raises(TrainError, match="Train on one process, with DistributedDataParallel"):
        run(EVERYTHING, tmp_path / "sharded")
