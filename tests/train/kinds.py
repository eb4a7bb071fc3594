"""Tiny trainings of every kind, observed (`watched`), stopped (`stop`), in one process or two."""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from accelerate import PartialState
from accelerate.state import GradientState
from accelerate.utils import DistributedType
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.fsdp import FSDPModule

from layerwise.plan import Plan
from layerwise.plan.samplers import Drop, Fixed, Sampler, Shuffle
from layerwise.plan.schedule import GrowthSchedule, Phase
from layerwise.plan.schedule.cost import ModelCost
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.stack import load
from layerwise.train.data_order import ReproducibleDataset
from layerwise.train.heal.options import HealingOptions, Method, healing_recipe
from layerwise.train.measured import MeasuredTrainer
from layerwise.train.methods import METHODS, Options, recipe
from layerwise.train.pretrain.trainer import pretrain
from layerwise.train.recipe import GrowthExtension, Recipe, Settings, grown
from layerwise.train.training import Base, train
from train.pretraining_text import RECIPE, TEXT, TOKENIZER
from train.tiny_models import tiny_digits, tiny_llama, tiny_text, tiny_vit

DEPTH = 4
STEPS = 6
EXAMPLES = 21
"""In batches of 8: 3 steps per epoch, with the last batch never full."""

SETTINGS = Settings(
    epochs=2,
    batch_size=8,
    evals=3,
    learning_rate=1e-2,
    schedule="linear",
    warmup=0.2,
    gradient_accumulation_steps=2,
    from_scratch_factor=1,
)
"""Six steps; checkpoints after steps 2, 4 and 6, in the middle of epochs."""
SHORT: dict[str, Any] = {"evals": 2, "gradient_accumulation_steps": 1}
"""One pass per step; checkpoints after the third and the last."""

SAMPLERS: dict[str, Sampler] = {
    "two layers": Fixed(Plan.of((0, 2))),
    "preserve": Drop(0.5, of=Shuffle(), preserve=True),
}
"""Samplers that no method uses alone."""


def eventful(depth: int) -> GrowthSchedule:
    every = tuple(range(depth))
    return GrowthSchedule(
        "eventful",
        depth,
        (
            Phase("core", 0.25, (1,), embedding=False, head=False, present=(0, 1), shape="linear", warmup=0.4),
            Phase("stack", 0.25, every, copies=((2, 1),), drop=(0.1, 0.6), redraw=(0,), scale=((1, 0.5),), rate=0.5),
            Phase("drawn", 0.25, every, sample=1, every=2, head=False, optimizer="drop"),
            Phase("top", 0.25, (1, 2), embedding=False, shape="cosine", optimizer="drop"),
        ),
    )


class StoppedError(Exception):
    """Simulated power failure."""


@dataclass
class Noted:
    losses: list[float] = field(default_factory=list)
    plans: list[str] = field(default_factory=list)
    read: list[Any] = field(default_factory=list)
    rests: dict[str, list[str]] = field(default_factory=dict)


@contextmanager
def watched(noted: Noted, stop: int | None = None, *, sharded: bool = False) -> Iterator[None]:
    own, step_end = MeasuredTrainer.training_step, MeasuredTrainer._maybe_log_save_evaluate
    drawn, begin = ReproducibleDataset.__getitems__, MeasuredTrainer.train
    before: dict[str, Tensor] = {}

    def training_step(self: Any, model: Any, inputs: Any, *rest: Any) -> Tensor:
        if self.state.global_step == stop:
            raise StoppedError
        assert isinstance(model, FSDPModule) == sharded
        before.update({name: each.detach().clone() for name, each in self.model.named_parameters()})
        noted.plans.append(str(self.stack.running) if hasattr(self, "stack") else str(tuple(inputs["input_ids"].shape)))
        loss = own(self, model, inputs, *rest)
        noted.losses.append(loss.item())
        return loss

    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = self.model.named_parameters()
        rests = sorted(name for name, each in named if torch.equal(each, before[name]))
        noted.rests[str(self.state.global_step - 1)] = rests
        return step_end(self, *args, **kwargs)

    def train_from_now(self: Any, *args: Any, **kwargs: Any) -> Any:
        noted.read.clear()  # of what was read to know the lengths of all examples
        return begin(self, *args, **kwargs)

    def read(self: ReproducibleDataset, indices: Any) -> Any:
        noted.read.extend(indices)
        return drawn(self, indices)

    with (
        patch.object(MeasuredTrainer, "training_step", training_step),
        patch.object(MeasuredTrainer, "_maybe_log_save_evaluate", stepped),
        patch.object(MeasuredTrainer, "train", train_from_now),
        patch.object(ReproducibleDataset, "__getitems__", read),
    ):
        yield


Kind = Callable[..., TrainingRecord]

CPU: dict[str, Any] = {"use_cpu": True}


def opened(make: Callable[..., Any], **options: Any) -> Base:
    return Base(lambda: load(make(DEPTH, **options)), make.__name__)


def method(name: str, ranks: Any = "shared", **changes: Any) -> Recipe:
    settings = replace(SETTINGS, augmentation="crop", **changes)
    if name in SAMPLERS:
        return Recipe(name, settings, SAMPLERS[name], Shuffle(), ranks=ranks)
    made = recipe(name, Options(settings, drop_rate=0.4), DEPTH)
    return replace(made, settings=replace(made.settings, evals=settings.evals), ranks=ranks)


def of_images(made: Recipe, dropout: float = 0.0) -> Kind:
    splits = tiny_digits("crop", train=EXAMPLES, validation=69)
    return lambda folder, **more: train(opened(tiny_vit, dropout=dropout), splits, made, 1, folder, **more)


def of_text(made: Recipe, longest: int = 6) -> Kind:
    return lambda folder, **more: train(opened(tiny_llama), tiny_text(longest=longest), made, 1, folder, **more)


def grows(schedule: GrowthSchedule) -> Kind:
    variant = GrowthExtension(schedule, 2 * STEPS, ModelCost((3.0,) * DEPTH, embedding=0.0, head=1.0))
    return of_text(grown(replace(SETTINGS, schedule="cosine", weight_decay=0.1, evals=6), variant))


def heals(how: Method) -> Kind:
    options = HealingOptions(method=how, hidden="cosine", rank=2)
    return of_text(healing_recipe("healed", SETTINGS, Plan.parse("0 2-3"), options), longest=9)


def pretrains(dropout: float) -> Kind:
    made = replace(RECIPE, steps=STEPS, dropout=dropout, gradient_accumulation_steps=2, batch_size=16)
    return lambda folder, **more: pretrain(TOKENIZER, TEXT, made, 0, folder, **more)


REPRESENTATIVE = (
    "layershuffle",
    "layershuffle-position",
    "layershuffle-predict",
    "layerdrop",
    "wiring-softmax",
    *SAMPLERS,
)
"""One recipe for each sampler and training variant."""
BY_METHOD = (*METHODS, *SAMPLERS, "retrained-2")
HEALED: tuple[Method, ...] = ("lora", "full", "tail")

KINDS: dict[str, Kind] = {
    **{name: of_images(method(name, **(SHORT if name != "layershuffle" else {}))) for name in BY_METHOD},
    "growth": grows(eventful(DEPTH)),
    **{f"heal {how}": heals(how) for how in HEALED},
    "pretraining": pretrains(0.0),
    "apart": of_images(method("layerdrop", "per-rank", **SHORT)),
    "with dropout": of_images(method("layershuffle"), dropout=0.1),
    "pretraining with dropout": pretrains(0.1),
}
"""Every kind of training; with dropout, masks depend on the number of processes."""


def interval(kind: str) -> int:
    return 3 if kind in BY_METHOD and kind != "layershuffle" else 2


def learned(folder: Path) -> dict[str, Tensor]:
    (path,) = (folder / MODEL).glob("*.safetensors")
    return load_file(path)


@contextmanager
def sharding_on_processors() -> Iterator[None]:
    """Label the process group of CPUs as one of GPUs: accelerate silently shards only on accelerators."""
    own = PartialState.__init__

    def noting(self: PartialState, *args: Any, **kwargs: Any) -> None:
        own(self, *args, **kwargs)
        if self.distributed_type is DistributedType.MULTI_CPU:
            self.distributed_type = DistributedType.MULTI_GPU

    # Clear the state that a training stopped between two passes left; a new process has none.
    GradientState()._set_sync_gradients(True)
    with patch.object(PartialState, "__init__", noting):
        yield


def carry_out(folder: Path, kind: str, stop: int | None = None, *, ends: bool = False, sharded: bool = False) -> Noted:
    given = {"fsdp": True, "fsdp_config": {"version": 2}} if sharded else {}
    noted = Noted()
    for until in (stop,) if ends or stop is None else (stop, None):
        noted = Noted()
        where = sharding_on_processors() if sharded else nullcontext()
        with where, watched(noted, until, sharded=sharded), suppress(StoppedError):
            KINDS[kind](folder, arguments={**CPU, **given})
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
    (folder / f"noted-{rank}.json").write_text(json.dumps(vars(noted)))
    return noted


def carry_out_all(trainings: Mapping[Path, Mapping[str, Any]]) -> None:
    warnings.simplefilter("ignore")
    for folder, options in trainings.items():
        carry_out(folder, **options)


def noted_in(folder: Path, rank: int = 0) -> Noted:
    return Noted(**json.loads((folder / f"noted-{rank}.json").read_text()))
