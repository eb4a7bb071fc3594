"""Time passes under plans in milliseconds, in turns.

`prefill` is `batch` windows of `context` tokens, `decode` one token per text after a cache of `context` tokens. Each
round runs every plan once in random order and compares it with the first. Medians over rounds have intervals of order
statistics (David and Nagaraja 2003, "Order Statistics", section 7.1). On CUDA a pass is replayed as a graph
(`CapturedPass`) unless graphs are turned off: launching kernels would dominate the time of a small model.
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
"""In fewer rounds no interval between order statistics holds the median in 95 of 100 draws."""

PASSES = 4
"""Passes of a plan in one round, of which the fastest counts: the others were disturbed."""

CACHE_SLOTS = 64
"""Slots of a cache of fixed length behind the context: one for every pass, those of warming up too."""

WARM_UP = 3
"""Passes on a side stream before a recording, as torch's documentation of CUDA graphs asks for."""

Name = TypeVar("Name")
Value = TypeVar("Value")


def run_in_turns(
    works: Mapping[Name, Callable[[int], Value]], rounds: Iterable[int], seed: int = 0
) -> Iterator[dict[Name, Value]]:
    """Call each of `works` once per round with the round's number, in an order drawn from seed and number.

    Under a rotation each would always follow the same other one, with its caches and heat.

    >>> list(run_in_turns({"a": lambda number: number, "b": lambda number: -number}, [1, 2]))
    [{'a': 1, 'b': -1}, {'a': 2, 'b': -2}]
    """
    for number in rounds:
        order = list(works)
        Random(f"{seed}/{number}").shuffle(order)
        done = {name: works[name](number) for name in order}
        yield {name: done[name] for name in works}


@dataclass(frozen=True, slots=True)
class Setting:
    phase: Phase = "prefill"
    batch: int = 1
    context: int = 512

    def __str__(self) -> str:
        return f"{self.phase}, batch {self.batch}, context {self.context}"


RoundTimes = Mapping[tuple[str, Setting], float]
"""The milliseconds of one round: by the name of what was timed, and the setting."""


def round_times(
    stack: Stack,
    plans: Sequence[Plan],
    settings: Sequence[Setting],
    number: int,
    *,
    graphs: bool = True,
    seed: int = 0,
) -> dict[tuple[str, Setting], float]:
    """Time every plan in every setting once, in random order; milliseconds, the fastest of `PASSES` passes.

    Raises `UnsupportedModelError` for decoding without a cache.
    """

    def timed(plan: Plan, _: int) -> dict[Setting, float]:
        with evaluating(stack.model), torch.inference_mode(), stack.under(plan):
            passes = ((setting, TimedPass(stack, setting, graphs=graphs, seed=seed)) for setting in settings)
            return {setting: 1000 * min(once.seconds() for _ in range(PASSES)) for setting, once in passes}

    (times,) = run_in_turns({str(plan): partial(timed, plan) for plan in plans}, [number], seed)
    return {(name, setting): own for name, by_setting in times.items() for setting, own in by_setting.items()}


def round_rows(names: Sequence[str], settings: Sequence[Setting], rounds: Sequence[RoundTimes]) -> list[Score]:
    from scipy.stats import quantile_test  # a second, for a few readers

    rows = []
    for setting in settings:
        first = [each[names[0], setting] for each in rounds]
        for name in names:
            own = [each[name, setting] for each in rounds]
            ratios = [mine / other for mine, other in zip(own, first, strict=True)]
            for metric, values in ((MILLISECONDS, own), (RATIO, ratios)):
                columns: dict[str, Any] = {"plan": name, "condition": str(setting), "documents": len(rounds)}
                interval = quantile_test(values, p=0.5).confidence_interval(0.95)
                rows.append(Score(TIME, metric, median(values), float(interval.low), float(interval.high), **columns))
    return rows


class TimedPass:
    """A prepared pass, replayed as a CUDA graph unless `graphs` is false; `seed` draws its tokens."""

    def __init__(self, stack: Stack, setting: Setting, *, graphs: bool = True, seed: int = 0) -> None:
        self.stack = stack
        generator = torch.Generator().manual_seed(seed)
        vocabulary = getattr(stack.text_config, "vocab_size", None)
        if not isinstance(vocabulary, int):
            raise UnsupportedModelError(f"{stack.source.name} reads no tokens, and only passes over tokens are timed")
        ids = torch.randint(0, vocabulary, (setting.batch, setting.context + 1), generator=generator, device="cpu").to(
            stack.device
        )
        captured = graphs and stack.device.type == "cuda"
        self.arguments: dict[str, Any] = {"input_ids": ids[:, :-1], "use_cache": False}
        if setting.phase == "decode":
            self.arguments = self._behind_a_cache(ids, static=captured)
        self.run()  # the first pass under a plan finds cold caches, and is not the one that is timed
        self.work: Callable[[], object] = CapturedPass(self.run, stack.device) if captured else self.run

    def _behind_a_cache(self, ids: Tensor, *, static: bool) -> dict[str, Any]:
        model, before = self.stack.model, ids.shape[1] - 1
        cache = StaticCache(config=model.config, max_cache_len=before + CACHE_SLOTS) if static else None
        output = model(input_ids=ids[:, :-1], use_cache=True, **({} if cache is None else {"past_key_values": cache}))
        cache = cache if cache is not None else getattr(output, "past_key_values", None)
        if cache is None:
            raise UnsupportedModelError(
                f"{self.stack.source.name} keeps no cache, so it has no decode phase: time its prefill"
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
    """A stopwatch: the processor's, or the events of an accelerator, which do not make the processor wait."""

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
    """`work` on `device`, recorded once; a call replays it. Raises `MeasureError` for work that no graph can hold."""

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
                f"a pass of this model cannot be recorded as a CUDA graph ({str(error).splitlines()[0]}): time it "
                "without, by --no-graphs"
            ) from error

    def __call__(self) -> None:
        self.graph.replay()
