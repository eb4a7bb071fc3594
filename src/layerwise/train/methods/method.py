"""A method of training: how it is called, the recipe that it makes, and the options that it reads.

Training in the order of the layers stands here: it is what every other method is compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, TypeVar

from layerwise.train.recipe import Recipe, Settings
from layerwise.train.variant import Variant

DropSync = Literal["shared", "per-rank", "masked"]
DROP_RATE = 0.2
"""The share of layers dropped that LayerDrop's authors recommend, and LayerShuffle's compare with."""

Chosen = TypeVar("Chosen", bound=Variant)


@dataclass(frozen=True, slots=True)
class Options:
    """Options that all methods of one run share; each reads what concerns it.

    `drop_rate` is the share of layers (or nodes) left out, `max_shift` the reach of a shuffled layer (`None`:
    anywhere). `drop_sync` says whether processes leave out the same layers (`shared`), their own (`per-rank`), or mask
    their updates (`masked`). `variants` replace the default options of their kind.
    """

    settings: Settings = field(default_factory=Settings)
    drop_rate: float = DROP_RATE
    max_shift: int | None = None
    drop_sync: DropSync = "shared"
    variants: tuple[Variant, ...] = ()

    def variant(self, kind: type[Chosen]) -> Chosen:
        """The options of a variant: those that were given, or its defaults."""
        return next((each for each in self.variants if isinstance(each, kind)), None) or kind()

    def to_json(self) -> dict[str, Any]:
        """In plain values."""
        return {
            **asdict(self),
            "variants": {each.NAME: each.to_json() for each in self.variants},
        }


@dataclass(frozen=True, slots=True)
class Method:
    """A method: the recipe that it makes for a model of some depth, and the options that it `reads`.

    `is_compared` says whether LayerShuffle is compared with it.
    """

    recipe: Callable[[Options, int], Recipe]
    reads: tuple[str, ...] = ()
    is_compared: bool = True


def baseline(options: Options, depth: int) -> Recipe:
    settings = options.settings
    return Recipe("baseline", replace(settings, epochs=min(1.0, settings.epochs), evals=1))


def sequential(options: Options, depth: int) -> Recipe:
    """In order, for all epochs: equal in data and in steps to every other method."""
    return Recipe("sequential", options.settings)
