"""Progress reporting to a terminal, a notebook or nowhere, and messages that verbs share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from layerwise.results.manifest import model_name

if TYPE_CHECKING:
    from layerwise.measure.language.evaluation_data import EvalData
    from layerwise.stack import Stack
    from layerwise.stack.streaming.executor import StreamingEstimate
    from layerwise.stack.streaming.resident import ReadingCost


class Reporter(Protocol):
    """Interface for progress messages."""

    def log(self, text: str) -> None:
        """Report a message."""

    def progress(self, label: str, share: float, seconds_left: float | None = None) -> None:
        """Report which share (0 to 1) of the work called `label` is done."""

    def result(self, text: str) -> None:
        """Report a result, which is a sentence or a table."""


class Silent:
    """A reporter that ignores everything."""

    def log(self, text: str) -> None:
        """Do nothing."""

    def progress(self, label: str, share: float, seconds_left: float | None = None) -> None:
        """Do nothing."""

    def result(self, text: str) -> None:
        """Do nothing."""


@contextmanager
def report_waiting(reporter: Reporter, what: str) -> Iterator[None]:
    reporter.log(what)
    reporter.progress(what, 0.0)
    try:
        yield
    finally:
        reporter.progress(what, 1.0)


def describe_model(stack: Stack) -> str:
    dtype = str(stack.dtype).removeprefix("torch.")
    return f"{model_name(stack.source.name)}: {stack.depth} layers, {dtype}, {stack.device}"


def describe_data(text: EvalData) -> str:
    if text.objective is None:
        return f"{text.name}: {len(text.windows):,} rows"
    longest = max(len(window.ids) for window in text.windows)
    count = f"{text.documents:,} document{'s' * (text.documents != 1)}"
    if text.repeated:
        count += f" ({text.repeated:,} duplicates skipped)"
    return f"{text.name}: {count}, {text.tokens:,} scored tokens in windows of at most {longest:,} tokens"


def describe_streaming(estimate: StreamingEstimate) -> str:
    return (
        f"layers on disk: {estimate.readings:,} reads (minimum {estimate.bound:,}), "
        f"{format_size(estimate.bytes_read)} in {len(estimate.rounds):,} round{'s' * (len(estimate.rounds) != 1)} of "
        f"batches; at most {format_size(estimate.resident_bytes)} of layers and {format_size(estimate.state_bytes)} "
        "of hidden states in memory"
    )


def describe_readings(cost: ReadingCost) -> str:
    from layerwise.measure.cost.memory import peak_bytes  # with torch

    return (
        f"layers on disk: {cost.readings:,} reads, {format_size(cost.bytes)}; at most {cost.most_layers} layers "
        f"({format_size(cost.most_bytes)}) in memory; peak memory of the process: {format_size(peak_bytes())}"
    )


def format_duration(seconds: float) -> str:
    """Format seconds with a suitable unit.

    >>> format_duration(75)
    '1 min 15 s'
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def format_size(count: float) -> str:
    """Format bytes with a suitable unit.

    >>> format_size(340_000_000), format_size(2_100_000_000)
    ('340 MB', '2.1 GB')
    """
    unit, name = next(((unit, name) for unit, name in ((1e9, "GB"), (1e6, "MB")) if count >= unit), (1e3, "kB"))
    return f"{count / unit:.2g} {name}" if count < 10 * unit else f"{count / unit:,.0f} {name}"
