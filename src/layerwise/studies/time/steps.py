"""The steps of a timing. Measure `time_round`: ms by plan, setting (`condition`) and round (`seed`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch

from layerwise.errors import UnsupportedModel
from layerwise.measure.cost.pass_time import (
    PHASES,
    RoundTimes,
    Setting,
    TimedPass,
    round_times,
    rows_of_rounds,
)
from layerwise.plan import Plan
from layerwise.results import Score
from layerwise.results.vocabulary import MILLISECONDS, TIME
from layerwise.runner.call import RoundsUnit
from layerwise.runner.experiment import Inputs
from layerwise.runner.opening import described, hardware, open_named
from layerwise.runner.price import timed_twice
from layerwise.runner.reporter import Reporter, describe_model
from layerwise.runner.steps import Completed, Outline, Steps
from layerwise.stack import Stack, weight_hash
from layerwise.stack.inputs import evaluating
from layerwise.studies.time.options import Timing

TIME_ROUND = "time_round"


def timing(config: Timing, reporter: Reporter, inputs: Inputs) -> Steps:
    """Time the plans in turns, relative to the first; raises `PlanError` for layers that the model does not have."""
    stack = inputs.stack or open_named(config, reporter)
    plans = _timed_plans(config, stack)
    settings = _timed_settings(config, stack)
    rounds = _timed_rounds(config, stack, plans, settings)

    def says() -> Iterator[str]:
        yield describe_model(stack)
        yield f"{len(plans)} plans in turns, {config.rounds} rounds; {'; '.join(map(str, settings))}"
        if len(settings) < len(PHASES):
            yield f"{stack.source.name} keeps no cache, so it has no decode phase"

    machine = hardware(stack.device)  # times of another machine are not added to a run
    manifest = described(
        stack,
        weight_hash(stack.model),
        corpus="random tokens",
        corpus_hash="",
        documents=config.batch,
        tokens=config.batch * config.context,
        window=config.context,
        families=(TIME, *map(str, plans)),
        tasks=tuple(map(str, settings)),
        seed=config.seed,
        settings={"machine": machine.get("accelerator", machine["processor"]), "graphs": config.graphs},
    )
    yield Outline(manifest, says, ahead=(rounds,))
    times = _times_of((yield from rounds), settings)
    return Completed(rows_of_rounds([str(plan) for plan in plans], settings, times))


def _timed_settings(config: Timing, stack: Stack) -> tuple[Setting, ...]:
    prefill, decode = (Setting(phase, config.batch, config.context) for phase in PHASES)
    try:
        with evaluating(stack.model), torch.inference_mode():
            TimedPass(stack, Setting("decode", 1, 1), graphs=False)
    except UnsupportedModel:
        return (prefill,)
    return (prefill, decode)


def _timed_rounds(config: Timing, stack: Stack, plans: Sequence[Plan], settings: Sequence[Setting]) -> RoundsUnit[int]:
    own = partial(round_times, stack, graphs=config.graphs, seed=config.seed)

    def once(number: int) -> Iterator[Score]:
        for (name, setting), milliseconds in own(plans, settings, number).items():
            yield Score(TIME_ROUND, MILLISECONDS, milliseconds, plan=name, condition=str(setting), seed=number)

    def begin() -> Callable[[int], Iterator[Score]]:
        list(once(-1))
        return once

    return RoundsUnit(
        TIME_ROUND,
        range(config.rounds),
        lambda row: int(row.seed or 0),
        begin,
        parts=len(plans),
        time_one=lambda: timed_twice(partial(own, plans[:1], settings, 0)),
    )


def _times_of(rounds: Mapping[int, Sequence[Score]], settings: Sequence[Setting]) -> list[RoundTimes]:
    by_text = {str(setting): setting for setting in settings}
    return [
        {(row.plan or "", by_text[row.condition or ""]): row.value for row in rounds[number]}
        for number in sorted(rounds)
    ]


def _timed_plans(config: Timing, stack: Stack) -> list[Plan]:
    plans = list(dict.fromkeys(map(Plan.parse, config.plans)))
    if len(plans) == 1:
        plans = list(dict.fromkeys([Plan.identity(stack.depth), *plans]))
    for plan in plans:
        stack.check(plan)
    return plans
