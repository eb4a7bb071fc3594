"""The arguments of verbs: their types, and how values are converted and checked."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

from layerwise.bounded import named
from layerwise.errors import OptionError

MAX_NUMBER = 2**53
"""Largest value of a numeric option. Above it, not every integer is exact as a float."""

REQUIRED: Any = inspect.Parameter.empty
"""Default that marks an argument as required, for arguments after an optional one."""

_WORDS = {int: "a whole number", float: "a number", str: "a string", Path: "a path", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Range:
    """Bounds of a number: `least` and `most` are inclusive, `above` and `below` exclusive."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None


@dataclass(frozen=True, slots=True)
class Metavar:
    text: str


@dataclass(frozen=True, slots=True)
class Flag:
    """The flag of an argument, if it is not simply its name (such as `--max-length` for `max_length`)."""

    text: str


class Trait(Enum):
    """Special treatment of an argument.

    RARE: It is listed only by `--help-all`.
    REPEATED: The flag is repeated for each value. Other sequences are written as one value with commas.
    OPENED: In Python, it also accepts a loaded object, such as a stack.
    LOCATION: It is a string that may be a path.
    EMPTY: It may be an empty string.
    KEYWORD: It is a flag on the command line, although it is positional in Python.
    POSITIONAL: It is positional on the command line, although it is keyword-only in Python.
    PYTHON: It is an object, so that only Python can pass it.
    """

    RARE = "rare"
    REPEATED = "repeated"
    OPENED = "opened"
    LOCATION = "location"
    EMPTY = "empty"
    KEYWORD = "keyword"
    POSITIONAL = "positional"
    PYTHON = "python"


@dataclass(frozen=True)
class Argument:
    """An argument of a verb.

    `kinds` are the types that its value can have. If it is a list, `element` are the types that its items can have.
    """

    name: str
    hint: Any
    default: Any
    help: str
    metavar: str | None
    given_flag: str | None
    bounds: Range
    marks: frozenset[Trait]
    is_positional: bool
    kinds: tuple[Any, ...] = field(init=False)
    element: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        kinds = list_alternatives(self.hint)
        inside = next((get_args(kind)[0] for kind in kinds if is_sequence_hint(kind)), None)
        object.__setattr__(self, "kinds", tuple(kind for kind in kinds if not is_sequence_hint(kind)))
        object.__setattr__(self, "element", () if inside is None else list_alternatives(inside))

    @property
    def flag(self) -> str:
        """Return the flag of the argument, or its placeholder if it is positional on the command line."""
        if self.is_positional:
            return self.placeholder
        return self.given_flag or "--" + self.name.replace("_", "-")

    @property
    def placeholder(self) -> str:
        if self.metavar is not None:
            return self.metavar
        names = ((int, "N"), (float, "X"), (Path, "PATH"))
        if list_choices(self.hint):
            return "CHOICE"
        return next((text for kind, text in names if kind in self.kinds), "NAMES" if self.element else "TEXT")

    @property
    def is_required(self) -> bool:
        return self.default is inspect.Parameter.empty

    def convert(self, value: Any) -> Any:
        """Convert a value from Python, YAML or JSON to the type of the argument, such as a string to a path."""
        is_opened = Trait.OPENED in self.marks and not isinstance(value, str | Path)
        if value is None or is_opened or Trait.PYTHON in self.marks:
            return value
        if self.element and isinstance(value, str):
            value = (value,) if Trait.REPEATED in self.marks else split_commas(value)
        if self.element and isinstance(value, list | tuple):
            return tuple(_convert(each, self.element) for each in value)
        return _convert(value, self.kinds)

    def check(self, value: Any, spelled: str) -> None:
        """Check the type and bounds of a converted value. Error messages call the argument `spelled`."""
        if Trait.PYTHON in self.marks or (Trait.OPENED in self.marks and not isinstance(value, str)):
            return
        if value == "" and Trait.EMPTY not in self.marks:
            raise OptionError(f"{spelled} must not be empty. Omit it or pass a value.")
        is_several = bool(self.element) and isinstance(value, tuple)
        kinds = self.element if is_several else self.kinds
        if not all(any(_has_type(part, kind) for kind in kinds) for part in (value if is_several else (value,))):
            near = get_close_matches(str(value), list_choices(self.hint), n=1)
            meant = f" Did you mean {near[0]}?" if near else ""
            raise OptionError(f"{spelled} must be {describe_type(self.hint)}, got {named(repr(value))}.{meant}")
        for part in value if isinstance(value, tuple) else (value,):
            if part == "" and Trait.EMPTY not in self.marks:
                raise OptionError(f"{spelled} must not contain an empty string.")
            if isinstance(part, int | float) and not isinstance(part, bool):
                _check_bounds(spelled, part, self.bounds)
            if isinstance(part, Path) or (Trait.LOCATION in self.marks and isinstance(part, str)):
                check_location(spelled, part)

    def parse(self, words: Sequence[str], spelled: str) -> Any:
        """Parse the words that the command line has for this argument. Error messages call it `spelled`."""
        if not self.element:
            return self._parse_word(words[-1], self.kinds, spelled)
        parts = tuple(words) if Trait.REPEATED in self.marks else split_commas(*words)
        return tuple(self._parse_word(word, self.element, spelled) for word in parts)

    def _parse_word(self, word: str, kinds: tuple[Any, ...], spelled: str) -> Any:
        if word in list_choices(self.hint):
            return word
        if bool in kinds and word.lower() in ("true", "false"):
            return word.lower() == "true"
        for kind in (int, float):
            if kind in kinds:
                try:
                    return kind(word)
                except ValueError:
                    continue
        if Path in kinds and word:
            check_location(spelled, word)
            return Path(word)
        return word


def split_annotation(hint: Any) -> tuple[Any, list[Any]]:
    """Split a type hint into the plain type and its `Annotated` metadata, from the outermost to the innermost."""
    if get_origin(hint) is Annotated:
        inner, *marks = get_args(hint)
        plain, further = split_annotation(inner)
        return plain, [*reversed(marks), *further]
    if get_origin(hint) in (Union, UnionType):
        parts = [split_annotation(part) for part in get_args(hint)]
        plain = Union.__getitem__(tuple(part for part, _ in parts))
        return plain, [mark for _, marks in parts for mark in marks]
    return hint, []


def list_alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def is_sequence_hint(kind: Any) -> bool:
    return get_origin(kind) in (tuple, Sequence) or getattr(get_origin(kind), "__name__", "") == "Sequence"


def list_choices(hint: Any) -> tuple[str, ...]:
    return tuple(
        str(each) for kind in list_alternatives(hint) if get_origin(kind) is Literal for each in get_args(kind)
    )


def _convert(value: Any, kinds: tuple[Any, ...]) -> Any:
    from layerwise.plan import Plan
    from layerwise.search.budget import Budget

    if isinstance(value, str) and value and Path in kinds:
        return Path(value)
    if isinstance(value, int) and not isinstance(value, bool) and float in kinds and int not in kinds:
        return float(value)
    is_torch = type(value).__module__ == "torch"
    if is_torch or isinstance(value, Plan | Budget) or (isinstance(value, Path) and Path not in kinds):
        return str(value).removeprefix("torch.")
    return value


def _has_type(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if kind is float else kind)


def describe_type(hint: Any) -> str:
    choices = list_choices(hint)
    texts = [f"one of {', '.join(choices)}" if len(choices) > 1 else choices[0]] if choices else []
    for kind in list_alternatives(hint):
        if is_sequence_hint(kind):
            texts.append("a list")
        elif kind is not NoneType and get_origin(kind) is not Literal:
            texts.append(_WORDS.get(kind, getattr(kind, "__name__", str(kind))))
    return " or ".join(dict.fromkeys(texts))


def _check_bounds(spelled: str, value: float, bounds: Range) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"{spelled} must be finite, got {value}.")
    if abs(value) > MAX_NUMBER:
        raise OptionError(f"{spelled} must be at most {MAX_NUMBER:,}, got a larger number.")
    limits = (
        (bounds.least, "at least", operator.ge),
        (bounds.above, "above", operator.gt),
        (bounds.most, "at most", operator.le),
        (bounds.below, "below", operator.lt),
    )
    limits_given = [(bound, word, compare) for bound, word, compare in limits if bound is not None]
    if not all(compare(value, bound) for bound, _, compare in limits_given):
        words = " and ".join(f"{word} {bound:,}" for bound, word, _ in limits_given)
        raise OptionError(f"{spelled} must be {words}, got {value:,}.")


def check_location(spelled: str, location: str | Path) -> None:
    if "\0" in str(location):
        raise OptionError(f"{spelled} must not contain a null byte, got {named(str(location))}.")
    try:
        Path(location).expanduser().exists()
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise OptionError(f"{spelled} must be a valid path, got {named(str(location))} ({reason}).") from error


def split_commas(*texts: str) -> tuple[str, ...]:
    """Split names at commas.

    Example:
        >>> split_commas("painters, leave_one_out")
        ('painters', 'leave_one_out')
    """
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


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
