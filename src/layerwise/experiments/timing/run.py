"""A timing that is ready to run: the model is open, and every plan is one that it can run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import torch

from layerwise.errors import UnsupportedModel
from layerwise.experiments.experiment import Prepared
from layerwise.experiments.forecast.work import Work, WorkCost, is_short
from layerwise.experiments.provenance import described, hardware
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.sentences import describe_model
from layerwise.experiments.timing.config import Timing
from layerwise.experiments.timing.rounds import measured_rounds, stored_rounds
from layerwise.measure.cost.pass_time import (
    PASSES,
    PHASES,
    Setting,
    TimedPass,
    TimedPlan,
    round_times,
    rows_of_rounds,
)
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.vocabulary import TIME
from layerwise.stack import Stack, weight_hash
from layerwise.stack.checks.checkpoint_files import numbers_of
from layerwise.stack.inputs import evaluating


class PreparedTiming(Prepared):
    """A model and the plans that are timed, the first of which the others are compared with.

    Raises `PlanError` for a plan of layers that the model does not have.
    """

    def __init__(self, config: Timing, stack: Stack) -> None:
        self.config = config
        self.stack = stack
        self.plans = _timed_plans(config, stack)
        self.settings = timed_settings(stack, config.batch, config.context)
        self.manifest = described(
            stack, weight_hash(stack.model), corpus="random tokens", corpus_hash="", documents=config.batch,
            tokens=config.batch * config.context, window=config.context, families=(TIME, *map(str, self.plans)),
            tasks=tuple(map(str, self.settings)), seed=config.seed, settings=timing_settings(stack, config.graphs),
        )  # fmt: skip

    def describe(self) -> Iterator[str]:
        """The model, and what is timed how often."""
        yield describe_model(self.stack)
        yield f"{len(self.plans)} plans in turns, {self.config.rounds} rounds; {'; '.join(map(str, self.settings))}"
        if len(self.settings) < len(PHASES):
            yield f"{self.stack.source.name} keeps no cache, so it has no decode phase"

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        """The rounds that are left."""
        left = self.config.rounds - (0 if run is None else len(stored_rounds(run, self.settings)))
        yield from rounds_works({"": self.stack}, self.plans, self.settings, left, graphs=self.config.graphs)

    def measure(self, run: Run, reporter: Reporter) -> None:
        """Time the rounds that are missing, and store what all of them say."""
        once = partial(
            round_times, {"": self.stack}, self.plans, self.settings, graphs=self.config.graphs, seed=self.config.seed
        )  # fmt: skip
        rounds = measured_rounds(
            run, self.settings, self.config.rounds, once, lambda share: reporter.progress("rounds", share)
        )
        names = [str(plan) for plan in self.plans]
        run.store.replace_scores(TIME, rows_of_rounds(names, self.settings, rounds))


def timed_settings(stack: Stack, batch: int, context: int) -> tuple[Setting, ...]:
    """The settings of both phases; prefill alone for a model that keeps no cache."""
    prefill, decode = (Setting(phase, batch, context) for phase in PHASES)
    try:
        with evaluating(stack.model), torch.inference_mode():
            TimedPass(stack, Setting("decode", 1, 1), graphs=False)
    except UnsupportedModel:
        return (prefill,)
    return (prefill, decode)


def timing_settings(stack: Stack, graphs: bool) -> dict[str, object]:
    """What decides a time beside what is timed: another machine's are not added to it."""
    machine = hardware(stack.device)
    return {"machine": machine.get("accelerator", machine["processor"]), "graphs": graphs}


def rounds_works(
    stacks: Mapping[str, Stack], plans: Sequence[TimedPlan], settings: Sequence[Setting], rounds: int, *, graphs: bool
) -> Iterator[Work]:
    """What so many rounds will take, and one that warms up; nothing where that is short.

    One plan after another is timed, as long as there is time, once the first has warmed up.
    """
    passes = (rounds + 1) * len(plans) * len(settings) * (PASSES + 2)
    operations = 2.0 * numbers_of(stacks[""].model) * settings[0].batch * settings[0].context
    if rounds <= 0 or is_short(passes * operations, passes):
        return

    def measure(seconds: float) -> WorkCost:
        end = time.perf_counter() + seconds
        round_times(stacks, plans[:1], settings, 0, graphs=graphs)
        began, done = time.perf_counter(), 0
        while done < len(plans) and (not done or time.perf_counter() < end):
            round_times(stacks, plans[done : done + 1], settings, 0, graphs=graphs)
            done += 1
        a_plan = (time.perf_counter() - began) / done
        return WorkCost(a_plan * len(plans) * (rounds + 1), measured_on=f"{done} of {len(plans):,} plans")

    yield Work("rounds", measure)


def _timed_plans(config: Timing, stack: Stack) -> list[TimedPlan]:
    plans = list(dict.fromkeys(map(Plan.parse, config.plans)))
    if len(plans) == 1 and not config.fused:
        plans = list(dict.fromkeys([Plan.identity(stack.depth), *plans]))
    for plan in plans:
        stack.check(plan)
    timed = [TimedPlan(plan) for plan in plans]
    return [*timed, *(TimedPlan(plan, fused=True) for plan in plans if config.fused)]
