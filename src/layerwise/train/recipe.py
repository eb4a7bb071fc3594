"""Recipes: all settings of a training run as one frozen value.

`Settings` configure the optimizer; `Recipe` adds the method: the plan of each pass, the addition to the model (a
`TrainingExtension`), and the criterion of validation. This module needs no torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from layerwise.errors import TrainError
from layerwise.plan import Plan
from layerwise.plan.samplers import Drop, Failout, Fixed, Sampler, Shuffle
from layerwise.plan.schedule import GrowthSchedule
from layerwise.plan.schedule.cost import ModelCost
from layerwise.results.training_record import RETRAINED
from layerwise.train.precision import Precision

if TYPE_CHECKING:
    from torch import nn

    from layerwise.stack import Stack

Ranks = Literal["shared", "per-rank"]

MAX_SETTING = 1e9
"""Maximum number of steps, epochs or examples: larger values are typing errors."""


def check_positive(name: str, value: float) -> None:
    if not 0 < value <= MAX_SETTING:
        raise TrainError(f"{name} must be above 0 and at most {MAX_SETTING:g}, got {value}.")


@dataclass(frozen=True, slots=True)
class Settings:
    """Optimizer settings; the defaults are those of the LayerShuffle paper (section 4).

    `batch_size` examples over all processes run in `gradient_accumulation_steps` equal parts. `warmup` is the share of
    steps with a rising learning rate, `evals` the number of validations and checkpoints. `from_scratch_factor`
    multiplies the epochs of training runs from random weights. `precision` is that of the forward pass; weights stay
    float32. With `compiled`, blocks are compiled (`layerwise.stack.compilation`).
    """

    epochs: float = 20.0
    batch_size: int = 128
    gradient_accumulation_steps: int = 1
    learning_rate: float = 1e-4
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    warmup: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-6
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    augmentation: Literal["none", "crop", "crop+flip"] = "none"
    precision: Precision = "float32"
    evals: int = 20
    from_scratch_factor: float = 3.0
    gradient_checkpointing: bool = False
    compiled: bool = False

    def __post_init__(self) -> None:
        for name in (
            "epochs",
            "batch_size",
            "gradient_accumulation_steps",
            "learning_rate",
            "evals",
            "from_scratch_factor",
        ):
            check_positive(name, getattr(self, name))
        if not 0 <= self.warmup <= 1:
            raise TrainError(f"warmup must be a share of the steps between 0 and 1, got {self.warmup}.")
        if self.batch_size % self.gradient_accumulation_steps:
            raise TrainError(
                f"batch_size ({self.batch_size}) must be divisible by gradient_accumulation_steps "
                f"({self.gradient_accumulation_steps})."
            )

    def steps(self, examples: int) -> int:
        steps = self.epochs * math.ceil(examples / self.batch_size)
        # 3 / 633 epochs times 633 steps is slightly more than 3.
        return max(1, round(steps) if math.isclose(steps, round(steps), rel_tol=1e-12) else math.ceil(steps))


DEFAULTS_BY_MODEL: Mapping[str, Settings] = {
    "demo-vit": Settings(
        epochs=20, batch_size=64, learning_rate=1e-3, schedule="cosine", warmup=0.02, augmentation="crop", evals=8
    ),
    "demo": Settings(epochs=6, batch_size=16, learning_rate=1e-3, schedule="cosine", warmup=0.05, evals=6),
}
"""Settings for the embedded models: minutes of training that suffice to learn every order."""

EXTENSIONS: dict[str, type[TrainingExtension]] = {}


@dataclass(frozen=True, slots=True)
class TrainingExtension:
    """Addition to a model or its Trainer; this base class adds nothing.

    Subclasses have their own options and are registered under `NAME`. `MODULE` names the submodule that `attach` adds,
    `ADDED` describes the part that layers require. `TRAINING_ARGUMENTS` replace the defaults. `ATTACHED_BY` and
    `TRAINED_BY` name a function and a class, MODULE:NAME in `layerwise.train`, which are imported when training
    starts because they need torch.
    """

    NAME: ClassVar[str] = "plain"
    MODULE: ClassVar[str | None] = None
    ADDED: ClassVar[str | None] = None
    TRAINING_ARGUMENTS: ClassVar[Mapping[str, Any]] = {}
    ATTACHED_BY: ClassVar[str | None] = None
    TRAINED_BY: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        EXTENSIONS[cls.NAME] = cls

    def attach(self, stack: Stack) -> nn.Module | None:
        module: nn.Module | None = None if self.ATTACHED_BY is None else _named(self.ATTACHED_BY)(stack, self)
        return module

    def trainer(self) -> Callable[..., Any] | None:
        """Return the factory of the Trainer, with the parameters of `PlanTrainer`; None for the default."""
        return None if self.TRAINED_BY is None else partial(_named(self.TRAINED_BY), options=self)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _named(text: str) -> Callable[..., Any]:
    module, _, name = text.partition(":")
    result: Callable[..., Any] = getattr(import_module(f"layerwise.train.{module}"), name)
    return result


@dataclass(frozen=True, slots=True)
class GrowthExtension(TrainingExtension):
    """Growth schedule over `steps` of a model with this `cost`.

    Raises:
        PlanError: If the schedule has another depth or an empty phase.
    """

    NAME: ClassVar[str] = "growth"
    # Schedules are compared by their final loss and their number of tokens.
    TRAINING_ARGUMENTS: ClassVar[Mapping[str, Any]] = {
        "load_best_model_at_end": False,
        "metric_for_best_model": None,
        "include_num_input_tokens_seen": "non_padding",
    }

    schedule: GrowthSchedule
    steps: int
    cost: ModelCost

    def __post_init__(self) -> None:
        self.schedule.check(len(self.cost.layers))
        self.schedule.bounds(self.steps)

    def to_json(self) -> dict[str, Any]:
        return {"schedule": self.schedule.to_json(), "steps": self.steps, "cost": asdict(self.cost)}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Recipe of a training run; `variant` is the name of the training variant.

    `sampler` draws the plan of every training pass, `validation` that of every validation batch; the checkpoint with
    the lowest validation loss is used. With `ranks="per-rank"` every process draws separately. A growth extension has a
    schedule instead of a sampler, and its last weights are used.
    """

    variant: str
    settings: Settings
    sampler: Sampler = field(default_factory=Fixed)
    validation: Sampler = field(default_factory=Fixed)
    extension: TrainingExtension = field(default_factory=TrainingExtension)
    from_scratch: bool = False
    ranks: Ranks = "shared"

    def __post_init__(self) -> None:
        if self.growth is not None and (self.sampler, self.validation) != (Fixed(), Fixed()):
            raise TrainError(
                f"A growth schedule cannot be combined with a sampler, got {self.sampler}. Pass one of them."
            )

    @property
    def growth(self) -> GrowthExtension | None:
        return self.extension if isinstance(self.extension, GrowthExtension) else None

    def steps(self, examples: int) -> int:
        return self.settings.steps(examples) if self.growth is None else self.growth.steps

    def to_json(self) -> dict[str, Any]:
        content = {
            "variant": self.variant,
            "settings": asdict(self.settings),
            "sampler": str(self.sampler),
            "validation": str(self.validation),
            "extension": self.extension.NAME,
            "options": self.extension.to_json(),
            "from_scratch": self.from_scratch,
            "ranks": self.ranks,
        }
        plain: dict[str, Any] = json.loads(json.dumps(content))
        return plain

    @property
    def skips_layers(self) -> bool:
        return self.growth is not None or _skips_layers(self.sampler)


def _skips_layers(sampler: Sampler) -> bool:
    match sampler:
        case Shuffle():
            return False
        case Fixed():
            return sampler.plan is not None
        case Drop() | Failout():
            return not sampler.preserve or _skips_layers(sampler.of)
    return True


def retrained(settings: Settings, layers: tuple[int, ...]) -> Recipe:
    plan = Fixed(Plan.of(layers))
    return Recipe(f"{RETRAINED}-{len(layers)}", settings, plan, plan)


def grown(settings: Settings, growth: GrowthExtension, variant: str | None = None) -> Recipe:
    """Return the recipe of a growth schedule, named `variant` or by its schedule."""
    return Recipe(variant or growth.schedule.name, settings, extension=growth)
