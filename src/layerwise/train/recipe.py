"""Recipes: all settings of a training run except model, data and seed.

`Settings` configures the optimizer. `Recipe` adds the training method: the plans that are drawn, and a
`TrainingExtension` of the model or its Trainer. This module does not import torch.
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
"""Maximum number of steps, epochs or examples; larger values are probably typos."""


def check_positive(name: str, value: float) -> None:
    if not 0 < value <= MAX_SETTING:
        raise TrainError(f"{name} must be above 0 and at most {MAX_SETTING:g}, got {value}.")


@dataclass(frozen=True, slots=True)
class Settings:
    """Optimizer settings; the defaults are those of the LayerShuffle paper (section 4).

    `batch_size` is the number of examples per step over all processes and accumulation steps. `warmup` is the share of
    steps in which the learning rate rises, and `evals` the number of validations and checkpoints. Training runs from
    random weights take `from_scratch_factor` times as many epochs. `precision` is that of the forward pass; weights
    stay float32. If `compiled`, blocks are compiled (`layerwise.stack.compilation`).
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
            raise TrainError(f"warmup must be between 0 and 1 (a share of the steps), got {self.warmup}.")
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
"""Settings for the bundled models: a few minutes of training suffice to learn every layer order."""

EXTENSIONS: dict[str, type[TrainingExtension]] = {}


@dataclass(frozen=True, slots=True)
class TrainingExtension:
    """Extension of a model or its Trainer; this base class changes nothing. Its fields are the extension's options.

    Attributes:
        NAME: Name under which a subclass is registered.
        MODULE: Name of the submodule that is added to the model.
        ADDED: Description of the submodule, if the layers cannot run without it.
        TRAINING_ARGUMENTS: `TrainingArguments` that override the defaults.
        ATTACHED_BY: Function that adds the submodule, as MODULE:NAME in `layerwise.train`. It is imported when
            training starts, because it requires torch.
        TRAINED_BY: Trainer class, written like ATTACHED_BY.
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
        """Return a function that creates the Trainer from the arguments of `PlanTrainer`; None for the default."""
        return None if self.TRAINED_BY is None else partial(_named(self.TRAINED_BY), options=self)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _named(text: str) -> Callable[..., Any]:
    module, _, name = text.partition(":")
    result: Callable[..., Any] = getattr(import_module(f"layerwise.train.{module}"), name)
    return result


@dataclass(frozen=True, slots=True)
class GrowthExtension(TrainingExtension):
    """Train in the phases of a growth schedule for `steps` steps; `cost` has the FLOPs of each layer.

    Raises:
        PlanError: If the schedule does not have as many layers as the model, or if a phase has no steps.
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
    """Recipe of a training run.

    The result is the checkpoint with the lowest validation loss, or the last one if there is a growth schedule.

    Args:
        sampler: Draws the plan of every forward pass in training. A growth schedule replaces it.
        validation: Draws the plan of every validation batch.
        from_scratch: Train from random weights.
        ranks: If `per-rank`, every process draws its own plans.
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
                f"a growth schedule cannot be combined with a sampler, got {self.sampler}. Pass only one of them."
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
    """Return the recipe of a growth schedule; `variant` defaults to the name of the schedule."""
    return Recipe(variant or growth.schedule.name, settings, extension=growth)
