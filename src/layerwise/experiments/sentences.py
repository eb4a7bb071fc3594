"""Sentences that every experiment says of its model and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerwise.results.model_name import model_name

if TYPE_CHECKING:
    from layerwise.measure.language.evaluation_data import EvalData
    from layerwise.stack import Stack


def describe_model(stack: Stack) -> str:
    """The name of a model, its depth, its data type and its device."""
    dtype = str(stack.dtype).removeprefix("torch.")
    return f"{model_name(stack.source.name)}: {stack.depth} layers, {dtype}, {stack.device}"


def describe_data(text: EvalData) -> str:
    """The name of a text, its documents and its scored tokens."""
    return f"{text.name}: {text.documents:,} document{'s' * (text.documents != 1)}, {text.tokens:,} scored tokens"


def duration(seconds: float) -> str:
    """A span of time in the unit a person would use.

    >>> duration(75)
    '1 min 15 s'
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
