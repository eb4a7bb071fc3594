"""Time forward passes under several plans, which take turns.

On CUDA a pass is replayed as a CUDA graph unless `graphs` is false, because launching kernels would dominate the time
of a small model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import median
from typing import Any, Literal, TypeVar, get_args

import torch
from torch import Tensor
from transformers import StaticCache

from layerwise.errors import MeasureError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.vocabulary import MILLISECONDS, RATIO, TIME
from layerwise.stack import Stack
from layerwise.stack.inputs import evaluating

Phase = Literal["prefill", "decode"]
PHASES: tuple[Phase, ...] = get_args(Phase)

MIN_ROUNDS = 6
"""Minimum number of rounds for a 95 % interval of the median from order statistics."""

PASSES = 4
"""Number of passes per plan and round, of which only the fastest counts."""

CACHE_SLOTS = 64
"""Number of slots after the context in a static KV cache: one for every pass, including warm-up."""

WARM_UP = 3
"""Number of warm-up passes on a side stream before a CUDA graph is captured, as recommended by torch."""

Name = TypeVar("Name")
Value = TypeVar("Value")


def run_in_turns(
    works: Mapping[Name, Callable[[int], Value]], rounds: Iterable[int], seed: int = 0
) -> Iterator[dict[Name, Value]]:
    """Call each function of `works` once per round, in random order, with the number of the round.

    >>> list(run_in_turns({"a": lambda number: number, "b": lambda number: -number}, [1, 2]))
    [{'a': 1, 'b': -1}, {'a': 2, 'b': -2}]
    """
    for number in rounds:
        # In a fixed order, each would always find the caches and heat of the same predecessor.
        order = list(works)
        Random(f"{seed}/{number}").shuffle(order)
        done = {name: works[name](number) for name in order}
        yield {name: done[name] for name in works}


@dataclass(frozen=True, slots=True)
class Setting:
    """A workload to time: `prefill` of `batch` windows with `context` tokens each, or `decode` of their next token."""

    phase: Phase = "prefill"
    batch: int = 1
    context: int = 512

    def __str__(self) -> str:
        return f"{self.phase}, batch {self.batch}, context {self.context}"


RoundTimes = Mapping[tuple[str, Setting], float]
"""The milliseconds of one round, by name of the plan and setting."""


def round_times(
    stack: Stack,
    plans: Sequence[Plan],
    settings: Sequence[Setting],
    number: int,
    *,
    graphs: bool = True,
    seed: int = 0,
) -> dict[tuple[str, Setting], float]:
    """Time every plan in every setting once, in random order, and return milliseconds.

    Only the fastest of `PASSES` passes counts. Raises `UnsupportedModelError` if the phase is `decode` and the model
    has no KV cache.
    """

    def timed(plan: Plan, _: int) -> dict[Setting, float]:
        with evaluating(stack.model), torch.inference_mode(), stack.under(plan):
            passes = ((setting, TimedPass(stack, setting, graphs=graphs, seed=seed)) for setting in settings)
            return {setting: 1000 * min(once.seconds() for _ in range(PASSES)) for setting, once in passes}

    (times,) = run_in_turns({str(plan): partial(timed, plan) for plan in plans}, [number], seed)
    return {(name, setting): value for name, by_setting in times.items() for setting, value in by_setting.items()}


def round_rows(names: Sequence[str], settings: Sequence[Setting], rounds: Sequence[RoundTimes]) -> list[Score]:
    """Return the median time of each plan in each setting over rounds, in milliseconds and relative to the first plan.

    Intervals are from order statistics (David and Nagaraja 2003, "Order Statistics", section 7.1).
    """
    from scipy.stats import quantile_test  # slow import

    rows = []
    for setting in settings:
        first = [each[names[0], setting] for each in rounds]
        for name in names:
            milliseconds = [each[name, setting] for each in rounds]
            ratios = [value / other for value, other in zip(milliseconds, first, strict=True)]
            for metric, values in ((MILLISECONDS, milliseconds), (RATIO, ratios)):
                columns: dict[str, Any] = {"plan": name, "condition": str(setting), "documents": len(rounds)}
                interval = quantile_test(values, p=0.5).confidence_interval(0.95)
                rows.append(Score(TIME, metric, median(values), float(interval.low), float(interval.high), **columns))
    return rows


class TimedPass:
    """A forward pass that is ready to be timed, replayed as a CUDA graph unless `graphs` is false."""

    def __init__(self, stack: Stack, setting: Setting, *, graphs: bool = True, seed: int = 0) -> None:
        self.stack = stack
        generator = torch.Generator().manual_seed(seed)
        vocabulary = getattr(stack.text_config, "vocab_size", None)
        if not isinstance(vocabulary, int):
            raise UnsupportedModelError(f"Only models that read tokens can be timed, got {stack.source.name}.")
        ids = torch.randint(0, vocabulary, (setting.batch, setting.context + 1), generator=generator, device="cpu").to(
            stack.device
        )
        captured = graphs and stack.device.type == "cuda"
        self.arguments: dict[str, Any] = {"input_ids": ids[:, :-1], "use_cache": False}
        if setting.phase == "decode":
            self.arguments = self._behind_a_cache(ids, static=captured)
        self.run()  # the first pass has cold caches
        self.work: Callable[[], object] = CapturedPass(self.run, stack.device) if captured else self.run

    def _behind_a_cache(self, ids: Tensor, *, static: bool) -> dict[str, Any]:
        model, before = self.stack.model, ids.shape[1] - 1
        cache = StaticCache(config=model.config, max_cache_len=before + CACHE_SLOTS) if static else None
        output = model(input_ids=ids[:, :-1], use_cache=True, **({} if cache is None else {"past_key_values": cache}))
        cache = cache if cache is not None else getattr(output, "past_key_values", None)
        if cache is None:
            raise UnsupportedModelError(
                f"decode needs a model with a KV cache, got {self.stack.source.name}. Use prefill."
            )
        arguments = {"input_ids": ids[:, -1:], "past_key_values": cache, "use_cache": True}
        if static:
            arguments["position_ids"] = torch.full((len(ids), 1), before, device=ids.device)
        return arguments

    def run(self) -> Any:
        return self.stack.model(**self.arguments)

    def seconds(self) -> float:
        return PassClock(self.stack.device).seconds(self.work)


class PassClock:
    """A clock that uses CPU time or, on an accelerator, events that do not block the CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.accelerated = device.type not in ("cpu", "meta")

    def seconds(self, work: Callable[[], object]) -> float:
        start = self.mark()
        work()
        return self.between(start, self.mark())

    def mark(self) -> Any:
        if not self.accelerated:
            return time.perf_counter()
        event = torch.Event(self.device, enable_timing=True)
        event.record(torch.accelerator.current_stream(self.device))
        return event

    def between(self, start: Any, end: Any) -> float:
        if not self.accelerated:
            return float(end - start)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1000


class CapturedPass:
    """A CUDA graph of `work`, which is replayed when called. Raises `MeasureError` if it cannot be captured."""

    def __init__(self, work: Callable[[], object], device: torch.device) -> None:
        with torch.cuda.device(device):
            self._record(work)

    def _record(self, work: Callable[[], object]) -> None:
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                work()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph: Any = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(self.graph):
                work()
        except RuntimeError as error:
            raise MeasureError(
                f"The model cannot be captured as a CUDA graph ({str(error).splitlines()[0]}). Use --no-graphs."
            ) from error

    def __call__(self) -> None:
        self.graph.replay()
