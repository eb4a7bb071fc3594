"""How long passes under plans take: milliseconds, by passes of several plans in turns.

Two phases are distinguished, because they are bound by different things:

    prefill    `batch` windows of `context` tokens in one pass
    decode     one token for each of `batch` texts, behind a cache of `context` tokens

Everything is timed as layerwise runs a plan, in place, the whole model too. A round runs every plan once, in an order
that changes, so that a machine whose pace changes disturbs all of them alike; a plan is compared with the first one
within each round. A figure is a median over rounds, and its interval is that between the order statistics that hold the
median in 95 of 100 draws (David and Nagaraja 2003, "Order Statistics", section 7.1).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal, get_args

import torch
from scipy import stats

from layerwise.errors import MeasureError, UnsupportedModel
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

TIME = "time"
"""The measure of the rows: `ms` of a pass, and `ratio`, to the first plan."""

Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = get_args(Phase)

LEAST_ROUNDS = 6
"""In fewer rounds no interval between order statistics holds the median in 95 of 100 draws."""

PASSES = 4
"""Passes of a plan in one round, of which the fastest counts: the others were disturbed."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is timed: the phase, the texts at once, and the tokens of each."""

    phase: Phase = "prefill"
    batch: int = 1
    context: int = 512

    def __str__(self) -> str:
        return f"{self.phase}, batch {self.batch}, context {self.context}"


@dataclass(frozen=True, slots=True)
class TimedPlan:
    """A plan, and whether the members of its groups run as one."""

    plan: Plan
    fused: bool = False

    def __str__(self) -> str:
        return f"{self.plan}, fused" if self.fused else str(self.plan)


def time_rows(
    stack: Stack,
    plans: Sequence[TimedPlan],
    setting: Setting,
    *,
    rounds: int = 20,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Score]:
    """Two rows for each of `plans`: its milliseconds for a pass, and its ratio to the first plan's, by rounds.

    `ms` is the median over rounds of the fastest pass of a round; `ratio` the median of the ratios within a round. Both
    have the interval of `median_interval`. Raises `MeasureError` for fewer than `LEAST_ROUNDS` rounds, and
    `UnsupportedModel` for decoding where nothing is cached and for groups that cannot run as one.
    """
    if rounds < LEAST_ROUNDS:
        raise MeasureError(f"{rounds} rounds give no interval of a median; take {LEAST_ROUNDS} or more")
    times: list[list[float]] = [[] for _ in plans]
    with evaluating(stack.model), torch.inference_mode():
        for number in range(-1, rounds):
            for step in range(len(plans)):
                location = (step + number) % len(plans)
                with stack.under(plans[location].plan, fused=plans[location].fused):
                    once = TimedPass(stack, setting)
                    fastest = min(once.seconds() for _ in range(PASSES))
                if number >= 0:  # the first round warms up
                    times[location].append(1000 * fastest)
            progress(number + 1, rounds)
    rows = []
    for each, mine in zip(plans, times, strict=True):
        ratios = [own / first for own, first in zip(mine, times[0], strict=True)]
        for metric, values in (("ms", mine), ("ratio", ratios)):
            low, high = median_interval(values)
            rows.append(Score(TIME, str(each), str(setting), metric, median(values), low, high, documents=rounds))
    return rows


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float]:
    """The order statistics between which the median lies in `level` of draws, or a little more.

    >>> median_interval([5.0, 1.0, 4.0, 2.0, 3.0, 6.0])
    (1.0, 6.0)
    """
    ordered = sorted(values)
    outside = int(stats.binom.ppf((1 - level) / 2, len(ordered), 0.5))
    # `outside` is the least count whose probability reaches the tail; one fewer stays below it.
    rank = max(0, outside - 1)
    return ordered[rank], ordered[-1 - rank]


class TimedPass:
    """One pass of the kind that is timed, prepared: what comes before it is not counted."""

    def __init__(self, stack: Stack, setting: Setting) -> None:
        self.stack = stack
        generator = torch.Generator().manual_seed(0)
        vocabulary = int(stack.text_config.vocab_size)
        ids = torch.randint(0, vocabulary, (setting.batch, setting.context + 1), generator=generator).to(stack.device)
        self.arguments: dict[str, Any] = {"input_ids": ids[:, :-1], "use_cache": False}
        if setting.phase == "decode":
            before = stack.model(input_ids=ids[:, :-1], use_cache=True)
            cache = getattr(before, "past_key_values", None)
            if cache is None:
                raise UnsupportedModel(
                    f"{stack.source.name} keeps no cache, so it has no decode phase: time its prefill"
                )
            self.arguments = {"input_ids": ids[:, -1:], "past_key_values": cache, "use_cache": True}
        stack.model(**self.arguments)  # the first pass under a plan finds cold caches, and is not the one that is timed

    def seconds(self) -> float:
        """How long the pass takes."""
        return PassClock(self.stack.device).seconds(lambda: self.stack.model(**self.arguments))


class PassClock:
    """A stopwatch: the processor's, or on an accelerator its own events, which do not make the processor wait."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"

    def seconds(self, work: Callable[[], object]) -> float:
        """How long `work` takes."""
        start = self.mark()
        work()
        return self.between(start, self.mark())

    def mark(self) -> Any:
        """The time now."""
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def between(self, start: Any, end: Any) -> float:
        """The seconds from one mark to another."""
        if not self.cuda:
            return float(end - start)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000
