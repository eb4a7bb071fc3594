"""Further `TrainingArguments`, as a user names them: known, of their type, and what transformers takes together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch
from transformers import TrainingArguments

from layerwise.errors import TrainError, near_matches
from layerwise.train.monitoring.tracking import check_trackers

_OURS = ("output_dir",)
"""What layerwise decides: it finds trainings again by where they lie."""

_WORDS = {bool: "true or false", int: "a whole number", float: "a number"}


@dataclass
class MeasuredArguments(TrainingArguments):
    """`TrainingArguments`, and what layerwise adds to every training.

    `checkpoint_minutes` is the time after which a checkpoint is written beside those of the steps. `peak_flops` is how
    many floating-point operations a second one device can do at most; known of some accelerators
    (`layerwise.train.monitoring.peak_flops`).
    """

    checkpoint_minutes: float | None = field(default=None, metadata={"help": "Minutes between checkpoints."})
    peak_flops: float | None = field(default=None, metadata={"help": "Most operations a second of one device."})

    def __post_init__(self) -> None:
        for name in ("checkpoint_minutes", "peak_flops"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name} is {value}; write a number above 0")
        super().__post_init__()


def check_arguments(given: Mapping[str, Any]) -> None:
    """Raise `TrainError` for arguments that `TrainingArguments` has not, or that it does not take, by name.

    Asked before there is a run folder, so that a slip of the keyboard leaves nothing behind.
    """
    known = {item.name for item in fields(MeasuredArguments) if item.init}
    hints = _hints() if given else {}
    for name, value in given.items():
        if name not in known:
            raise TrainError(f"transformers has no training argument {name!r}; {_near(name, known)}")
        if name in _OURS:
            raise TrainError(f"{name} is not for --set: name the folder of the run with --run")
        wanted = _wanted(hints[name])
        if wanted and not _fits(value, wanted):
            words = " or ".join(_WORDS[each] for each in wanted)
            raise TrainError(f"the training argument {name} is {str(value)[:40]!r}, where {words} belongs")
    check_trackers(given.get("report_to"))
    if given.keys() - {"use_cpu"}:
        training_arguments({"output_dir": "unused", "report_to": "none", "disable_tqdm": True, **given})


@cache
def _hints() -> dict[str, Any]:
    return get_type_hints(TrainingArguments) | get_type_hints(MeasuredArguments)


def training_arguments(values: Mapping[str, Any]) -> MeasuredArguments:
    """`MeasuredArguments` of these values. Raises `TrainError` for what transformers does not take, with its reason."""
    try:
        return MeasuredArguments(**values)
    except (TypeError, ValueError, OverflowError, ImportError, KeyError, AttributeError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise TrainError(f"transformers refuses these training arguments: {reason}") from error


def with_device(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, and `use_cpu` where there is no accelerator: several processes find each other by it alone.

    Without it each of them would take itself for the only one, and train in the folder of the others.
    """
    return {"use_cpu": not torch.accelerator.is_available(), **values}


def _near(name: str, known: set[str]) -> str:
    """The close spellings; all of the more than a hundred would help nobody."""
    matches = near_matches(name, known)
    return (
        matches.partition(" Known: ")[0] if "did you mean" in matches else "see its documentation of TrainingArguments"
    )


def _wanted(hint: Any) -> tuple[type, ...]:
    """The plain types that an annotation allows; none where it allows anything else, such as a text."""
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    plain = tuple(option for option in options if option is not NoneType)
    return plain if plain and all(option in _WORDS for option in plain) else ()


def _fits(value: object, wanted: tuple[type, ...]) -> bool:
    if value is None or isinstance(value, bool):
        return value is None or bool in wanted
    if isinstance(value, int):
        return (int in wanted or float in wanted) and abs(value) < 2**53
    return isinstance(value, float) and math.isfinite(value) and float in wanted
