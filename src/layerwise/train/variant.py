"""What a way of training adds to a model or to its Trainer, beyond a sampler of plans.

A variant is a frozen value with its own options, registered under its `NAME` by being defined. `Recipe` holds one;
`layerwise.train.training` and `layerwise.train.load_trained` attach what it says, and know no variant by name. This
module needs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from torch import nn

    from layerwise.stack import Stack

VARIANTS: dict[str, type[Variant]] = {}


@dataclass(frozen=True, slots=True)
class Variant:
    """The plain variant, which adds nothing; subclasses override what they add.

    `MODULE` names the submodule that `attach` adds. `ADDED` says what the layers cannot work without, `None` if
    nothing. `TRAINING_ARGUMENTS` replace those of every training. `ATTACHED_BY` and `TRAINED_BY` name a function and a
    class, MODULE:NAME in `layerwise.train`, imported when a training begins, since they need torch.
    """

    NAME: ClassVar[str] = "plain"
    MODULE: ClassVar[str | None] = None
    ADDED: ClassVar[str | None] = None
    TRAINING_ARGUMENTS: ClassVar[Mapping[str, Any]] = {}
    ATTACHED_BY: ClassVar[str | None] = None
    TRAINED_BY: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        VARIANTS[cls.NAME] = cls

    def attach(self, stack: Stack) -> nn.Module | None:
        """Make what the variant adds part of the model of `stack`; returns it."""
        module: nn.Module | None = None if self.ATTACHED_BY is None else _named(self.ATTACHED_BY)(stack, self)
        return module

    def trainer(self) -> Callable[..., Any] | None:
        """What makes the Trainer, of the options of a `PlanTrainer`; `None` for the plain one."""
        return None if self.TRAINED_BY is None else partial(_named(self.TRAINED_BY), options=self)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _named(text: str) -> Callable[..., Any]:
    module, _, name = text.partition(":")
    result: Callable[..., Any] = getattr(import_module(f"layerwise.train.{module}"), name)
    return result


def added_by(variant: object) -> str | None:
    """What the layers of a model trained with the variant of this name cannot do without, in words.

    >>> added_by("plain") is None
    True
    """
    kind = VARIANTS.get(str(variant))
    return None if kind is None else kind.ADDED
