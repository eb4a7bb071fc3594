"""The trainer and its data order."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, Trainer, TrainerCallback, set_seed

from layerwise.data.splits import Example, Examples, Splits
from layerwise.errors import TrainError
from layerwise.plan import Plan
from layerwise.plan.samplers import Fixed, Sampler, SeededSampler, Shuffle
from layerwise.stack import load
from layerwise.train.data_order import LengthGroupedSampler, ReproducibleDataset
from layerwise.train.trainer import PlanTrainer
from layerwise.train.validation import DividedBatches, DividedValidation
from tier import first_fast
from train.tiny_models import (
    VOCABULARY,
    FirstStep,
    arguments,
    forward_by_hand,
    plan_trainer,
    rooted,
    tied_llama,
    tiny_digits,
    tiny_llama,
    tiny_text,
    tiny_vit,
)

Make = Callable[[], PreTrainedModel]
MODELS = pytest.mark.parametrize(
    ("make", "read"), [(tiny_vit, tiny_digits), (tiny_llama, tiny_text)], ids=["vit", "llama"]
)


def vit_with_dropout() -> PreTrainedModel:
    return tiny_vit(dropout=0.2)


class Watched(PlanTrainer):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.losses: list[float] = []
        self.plans: list[Plan] = []
        self.validated: list[list[Plan]] = []

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Tensor:
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.losses.append(loss.item())
        return loss

    def compute_loss(self, model: Any, inputs: Any, *rest: Any, **options: Any) -> Any:
        (self.plans if model.training else self.validated[-1]).append(self.stack.running)
        return super().compute_loss(model, inputs, *rest, **options)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        self.validated.append([])
        return super().evaluate(*args, **kwargs)


def trainer_of(
    model: PreTrainedModel, splits: Splits, sampler: Sampler, folder: Path, *, callbacks: Any = (), **options: Any
) -> Any:
    own = {"callbacks": list(callbacks)}
    return plan_trainer(load(model), splits, folder, sampler, Shuffle(), Watched, own, **options)


@pytest.mark.parametrize("passes", [1, 2], ids=["whole", "accumulated"])
@pytest.mark.parametrize("plan", first_fast(["2 0 2", "2 0 1", "1"]))
@MODELS
def test_gradients_match_a_manual_loop(make: Make, read: Any, plan: str, passes: int, tmp_path: Path) -> None:
    trainer = trainer_of(
        make(),
        read(),
        Fixed(Plan.parse(plan)),
        tmp_path,
        max_steps=1,
        per_device_train_batch_size=8 // passes,
        gradient_accumulation_steps=passes,
    )
    noted = FirstStep().of(trainer)
    model, order = make(), Plan.parse(plan).order()
    assert len(noted.batches) == passes
    losses = [forward_by_hand(model, batch, order) / passes for batch in noted.batches]
    sum(losses).backward()
    assert noted.losses == pytest.approx([loss.item() for loss in losses], rel=1e-6)
    assert set(noted.gradients) == {name for name, _ in model.named_parameters()}
    for name, weight in model.named_parameters():
        if weight.grad is None:
            assert noted.gradients[name] is None, name
        else:
            torch.testing.assert_close(noted.gradients[name], weight.grad, rtol=1e-4, atol=1e-7, msg=name)


@pytest.mark.parametrize(
    ("make", "read"), [(vit_with_dropout, tiny_digits), (tiny_llama, tiny_text)], ids=["vit", "llama"]
)
def test_losses_without_a_plan_match_the_plain_trainer_exactly(make: Make, read: Any, tmp_path: Path) -> None:
    splits = read()
    ours = trainer_of(make(), splits, Fixed(), tmp_path)
    ours.train()
    theirs: list[float] = []

    class Plain(Trainer):
        def training_step(self, *args: Any, **kwargs: Any) -> Tensor:
            loss = super().training_step(*args, **kwargs)
            theirs.append(loss.item())
            return loss

    set_seed(3)
    Plain(model=make(), args=arguments(tmp_path), data_collator=splits.collate, train_dataset=splits.train).train()
    assert ours.losses == theirs
    assert len(theirs) == 4


def test_trained_plans_are_the_sampled_ones(tmp_path: Path) -> None:
    trainer = trainer_of(
        tiny_vit(),
        tiny_digits(),
        Shuffle(),
        tmp_path,
        gradient_accumulation_steps=2,
        per_device_train_batch_size=2,
        max_steps=3,
    )
    trainer.train()
    draws = SeededSampler(Shuffle(), 3, 5, "training")
    assert trainer.plans == [draws.at(step, one) for step in range(3) for one in range(2)]
    assert len(set(trainer.plans)) > 1


def test_every_validation_uses_the_same_plans(tmp_path: Path) -> None:
    trainer = trainer_of(
        tiny_vit(),
        tiny_digits(),
        Shuffle(),
        tmp_path,
        eval_strategy="steps",
        eval_steps=2,
        per_device_eval_batch_size=5,
    )
    trainer.train()
    draws = SeededSampler(Shuffle(), 3, 0, "validation")
    assert trainer.validated == [[draws.at(batch) for batch in range(4)]] * 2
    assert len(set(trainer.validated[0])) > 1


@pytest.mark.parametrize(("passes", "clip"), [(1, 1.0), (2, 0.0)], ids=["clipped", "accumulated"])
@MODELS
def test_a_non_finite_gradient_stops_the_training(
    make: Make, read: Any, passes: int, clip: float, tmp_path: Path
) -> None:
    """The loss stays finite; with two passes, only the first gradient is not."""
    model = rooted(make(), lambda: trainer.state.global_step == 2 and len(trainer.losses) == 2 * passes)
    trainer = trainer_of(
        model,
        read(),
        Shuffle(),
        tmp_path,
        save_strategy="steps",
        save_steps=1,
        max_grad_norm=clip,
        gradient_accumulation_steps=passes,
    )
    with pytest.raises(TrainError) as caught:
        trainer.train()
    draws = SeededSampler(Shuffle(), 3, 5, "training")
    plans = ", ".join(str(plan) for plan in dict.fromkeys(draws.at(2, one) for one in range(passes)))
    assert (
        f"the loss of step 3 is finite, but its gradient norm is nan under the plan{'s' * (passes > 1)} {plans};"
        in str(caught.value)
    )
    assert all(torch.isfinite(torch.tensor(trainer.losses)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-1", "checkpoint-2"]
    kept = type(model).from_pretrained(tmp_path / "checkpoint-2").state_dict()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, kept[name]), name
        assert torch.isfinite(weight).all(), name


def scaled(trainer: PlanTrainer, scale: float) -> torch.amp.GradScaler:
    trainer.accelerator.scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    return trainer.accelerator.scaler


def test_overflows_skipped_by_the_scaler_are_no_error(tmp_path: Path) -> None:
    model = tiny_vit()
    model.vit.layers[1].mlp.fc1.weight.register_hook(
        lambda gradient: gradient * (torch.inf if trainer.state.global_step == 1 else 1.0)
    )
    trainer = trainer_of(model, tiny_digits(), Fixed(), tmp_path)
    scaler = scaled(trainer, 64.0)
    trainer.train()
    assert len(trainer.losses) == 4
    assert scaler.get_scale() == 32.0
    assert all(weight.isfinite().all() for weight in model.parameters())


def test_gradients_that_overflow_at_every_scale_are_an_error(tmp_path: Path) -> None:
    """The scale falls until float16 would lose the loss."""
    trainer = trainer_of(rooted(tiny_vit()), tiny_digits(), Fixed(), tmp_path, max_steps=20)
    scaler = scaled(trainer, 2.0**-11)
    with pytest.raises(
        TrainError, match="the loss of step 4 is finite, but its gradient norm is nan under the plan 0-2"
    ):
        trainer.train()
    assert scaler.get_scale() == torch.finfo(torch.float16).tiny


@pytest.mark.parametrize("planted", ["weight", "batch"])
def test_a_non_finite_loss_names_step_and_plan(planted: str, tmp_path: Path) -> None:
    model, splits = tiny_vit(), tiny_digits()

    class Poison(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2 and planted == "weight":
                model.vit.layers[1].mlp.fc1.weight.data[0, 0] = float("nan")

    def collate(examples: Any) -> Any:
        batch = splits.collate(examples)
        if planted == "batch" and len(trainer.losses) == 2:
            batch["pixel_values"][0, 0, 0, 0] = float("nan")
        return batch

    trainer = trainer_of(model, splits, Shuffle(), tmp_path, callbacks=[Poison()], save_strategy="steps", save_steps=1)
    trainer.data_collator = collate
    with pytest.raises(TrainError) as caught:
        trainer.train()
    step = len(trainer.losses) + 1
    plan = SeededSampler(Shuffle(), 3, 5, "training").at(step - 1, 0)
    assert f"the loss of step {step} is nan under the plan {plan}" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert (tmp_path / f"checkpoint-{step - 1}" / "model.safetensors").is_file()
    assert not (tmp_path / f"checkpoint-{step}").exists()
    kept = type(model).from_pretrained(tmp_path / f"checkpoint-{step - 1}").state_dict()
    planted_name = "vit.layers.1.mlp.fc1.weight" if planted == "weight" else None
    for name, weight in model.state_dict().items():
        assert torch.isfinite(kept[name]).all(), name
        assert name == planted_name or torch.equal(weight, kept[name]), name


@pytest.mark.parametrize("make", [tiny_llama, tied_llama], ids=["untied", "tied"])
def test_checkpoints_that_do_not_fit_are_rejected(make: Make, tmp_path: Path) -> None:
    trainer = trainer_of(make(), tiny_text(), Fixed(), tmp_path, max_steps=1)
    kept = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer._save(str(tmp_path))
    for weight in trainer.model.parameters():
        weight.data += 1
    trainer._load_from_checkpoint(str(tmp_path))
    assert all(torch.equal(weight, kept[name]) for name, weight in trainer.model.state_dict().items())
    file = tmp_path / "model.safetensors"
    stored = load_file(file)
    save_file({name.replace("layers.1.mlp", "layers.1.feed"): weight for name, weight in stored.items()}, file)
    with pytest.raises(
        TrainError, match=r"does not fit the model: 6 weights differ, such as model.layers.1.feed.down_proj.weight"
    ):
        trainer._load_from_checkpoint(str(tmp_path))


def _pixels(examples: ReproducibleDataset, *numbers: int) -> list[torch.Tensor]:
    return [examples[number]["pixel_values"] for number in numbers]


def _equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_examples_depend_on_seed_epoch_and_index_only() -> None:
    examples = ReproducibleDataset(tiny_digits("crop").train, seed=4)
    first = _pixels(examples, *range(24))
    torch.manual_seed(11)
    assert _equal(_pixels(examples, *reversed(range(24))), first[::-1])
    assert not _equal(_pixels(ReproducibleDataset(tiny_digits("crop").train, seed=5), *range(24)), first)
    examples.set_epoch(1)
    assert not _equal(_pixels(examples, *range(24)), first)
    examples.set_epoch(0)
    assert _equal(_pixels(examples, *range(24)), first)

    examples = ReproducibleDataset(tiny_digits("crop").train, seed=4)
    before = torch.get_rng_state()
    batch = examples.__getitems__([5, 2])
    assert _equal([example["pixel_values"] for example in batch], _pixels(examples, 5, 2))
    assert torch.equal(torch.get_rng_state(), before)


def test_persistent_workers_see_the_epoch() -> None:
    splits = tiny_digits("crop")
    examples = ReproducibleDataset(splits.train, seed=4)
    loader = DataLoader(
        examples,
        batch_size=8,
        collate_fn=splits.collate,
        num_workers=1,
        persistent_workers=True,
        multiprocessing_context="fork",
    )
    for epoch in (0, 1):
        examples.set_epoch(epoch)
        read = torch.cat([batch["pixel_values"] for batch in loader])
        assert _equal(list(read), _pixels(examples, *range(24)))


def test_the_trainer_sets_the_epoch(tmp_path: Path) -> None:
    splits = tiny_digits("crop")
    examples = ReproducibleDataset(splits.train, seed=4)
    trainer = trainer_of(tiny_vit(), replace(splits, train=examples), Fixed(), tmp_path, max_steps=7)
    seen: list[int] = []
    trainer.data_collator = lambda batch: seen.append(examples.epoch) or splits.collate(batch)
    trainer.train()
    assert seen[:7] == [0] * 6 + [1], "24 examples are six batches"


class _Texts(Examples):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Example:
        return {"input_ids": torch.full((1 + index % 10,), index % VOCABULARY)}


@pytest.mark.parametrize("alike", [None, 4])
def test_the_order_depends_on_seed_and_epoch_only(alike: int | None) -> None:
    examples = ReproducibleDataset(_Texts(45), seed=4)
    order = LengthGroupedSampler(examples, alike)
    first = list(order)
    assert len(order) == 45
    assert sorted(first) == list(range(45)) != first
    examples.set_epoch(1)
    second = list(order)
    assert second != first
    torch.manual_seed(11)
    assert list(LengthGroupedSampler(ReproducibleDataset(_Texts(45), seed=4), alike)) == first
    assert list(LengthGroupedSampler(ReproducibleDataset(_Texts(45), seed=5), alike)) != first
    assert list(order) == second


def test_batches_group_texts_by_length() -> None:
    order = list(LengthGroupedSampler(ReproducibleDataset(_Texts(45), seed=4), alike=4))
    batches = [[1 + number % 10 for number in order[start : start + 4]] for start in range(0, 45, 4)]
    assert all(max(batch) - min(batch) <= 1 for batch in batches)
    lengths = [batch[0] for batch in batches[:-1]]
    assert lengths != sorted(lengths), "short texts first, and long ones last"
    assert len(batches[-1]) == 1, "the batch that is not full is the last"


@pytest.mark.parametrize("widest", [torch.float64, torch.float32], ids=["cpu", "mps"])
def test_a_divided_loss_needs_no_float64(monkeypatch: pytest.MonkeyPatch, widest: torch.dtype) -> None:
    """The sums of a batch have the widest dtype of the device of the loss, since MPS lacks float64."""
    sums = []

    def reduce(scored: Tensor, _: str) -> Tensor:
        sums.append(scored)
        return scored + torch.tensor([6.0, 2.0])  # the other process has two labels with a loss of 3

    trainer = DividedValidation.__new__(DividedValidation)
    trainer._divided, trainer._losses = DividedBatches(2, 2, 2, 0), []
    trainer.accelerator, trainer._loss_shifts_labels = SimpleNamespace(reduce=reduce), True
    monkeypatch.setattr("layerwise.train.validation.widest_dtype", lambda _: widest)
    monkeypatch.setattr(Trainer, "prediction_step", lambda *_: (torch.tensor(1.5), None, None))
    loss, *_ = trainer.prediction_step(None, {"labels": torch.ones(1, 5, dtype=torch.long)})
    assert sums[0].dtype == widest
    assert loss == torch.tensor((4 * 1.5 + 6) / 6)
    assert trainer._losses == [2.0]
