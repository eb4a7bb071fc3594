"""Types of arguments that several verbs share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar

from layerwise.runner.argument import Flag, Metavar, Range, Trait

if TYPE_CHECKING:
    from torch import Tensor, nn

    from layerwise.data.text.corpus import Corpus
    from layerwise.plan import Plan
    from layerwise.search.budget import Budget
    from layerwise.stack import Stack

    ModelLike: TypeAlias = Stack | nn.Module | str | Path
    OptionalModel: TypeAlias = ModelLike | None
    TextLike: TypeAlias = Corpus | Sequence[str] | str | Path | None
    Plans: TypeAlias = Sequence[str | Plan]
    OnePlan: TypeAlias = str | Plan | None
    BudgetLike: TypeAlias = str | Budget
    Inputs: TypeAlias = Mapping[str, Tensor] | None
    Batches: TypeAlias = Iterable[Mapping[str, Tensor]] | None
    RowMetric: TypeAlias = Callable[[Any, Mapping[str, Tensor]], Tensor] | None
else:
    ModelLike = Annotated[str, Trait.OPENED, Trait.LOCATION, Metavar("MODEL")]
    OptionalModel = Annotated[str | None, Trait.OPENED, Trait.LOCATION, Trait.KEYWORD, Metavar("MODEL")]
    TextLike = Annotated[str | None, Trait.OPENED, Trait.LOCATION, Trait.KEYWORD, Metavar("PATH")]
    Plans = Annotated[Sequence[str], Trait.REPEATED, Trait.KEYWORD, Flag("--plan"), Metavar("PLAN")]

    OnePlan = Annotated[str | None, Trait.EMPTY, Trait.KEYWORD, Metavar("PLAN")]
    BudgetLike = Annotated[str, Trait.KEYWORD, Metavar("BUDGET")]
    Inputs = Annotated[object, Trait.PYTHON]
    Batches = Annotated[object, Trait.PYTHON]
    RowMetric = Annotated[object, Trait.PYTHON]

T = TypeVar("T")

Rare = Annotated[T, Trait.RARE]
Location = Annotated[str | None, Trait.LOCATION, Metavar("PATH")]
PathLike = Annotated[str | Path | None, Metavar("PATH")]
Count = Annotated[int, Range(least=1)]
Names = Annotated[Sequence[str], Metavar("NAMES")]
Settings = Annotated[Sequence[str], Trait.REPEATED, Metavar("NAME=VALUE")]
Seed = Annotated[int, Range(least=0, most=2**32 - 1)]
Device = Literal["auto", "cpu", "cuda", "mps", "xpu"]
Dtype = Literal["auto", "stored", "float32", "float16", "bfloat16", "float64"]
DeviceMap = Literal["auto", "balanced", "balanced_low_0", "sequential"]


def to_path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)
