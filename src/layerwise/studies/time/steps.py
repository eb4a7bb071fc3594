"""The steps of `layerwise time`. In rows of `time_round`, `condition` is the setting and `seed` the round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

import torch

from layerwise.errors import UnsupportedModelError
from layerwise.measure.cost.pass_time import PHASES, RoundTimes, Setting, TimedPass, round_rows, round_times
from layerwise.plan import Plan
from layerwise.results import Manifest, Score
from layerwise.results.vocabulary import MILLISECONDS, TIME
from layerwise.runner.opening import make_manifest, read_hardware
from layerwise.runner.price import time_second_call
from layerwise.runner.tasks import RoundsTask
from layerwise.stack import Stack, weight_hash
from layerwise.stack.inputs import evaluating

TIME_ROUND = "time_round"


def find_settings(stack: Stack, batch: int, context: int) -> tuple[Setting, ...]:
    prefill, decode = (Setting(phase, batch, context) for phase in PHASES)
    try:
        with evaluating(stack.model), torch.inference_mode():
            TimedPass(stack, Setting("decode", 1, 1), graphs=False)
    except UnsupportedModelError:
        return (prefill,)
    return (prefill, decode)


def describe_settings(stack: Stack, plans: Sequence[Plan], settings: Sequence[Setting], rounds: int) -> list[str]:
    lines = [f"{len(plans)} plans timed in turns, {rounds} rounds; {'; '.join(map(str, settings))}"]
    if len(settings) < len(PHASES):
        lines.append(f"{stack.source.name} has no cache, so there is no decode phase")
    return lines


def describe_run(
    stack: Stack, plans: Sequence[Plan], settings: Sequence[Setting], *, graphs: bool, seed: int
) -> Manifest:
    """Return the manifest, which includes the hardware, so that times of different machines are not mixed."""
    machine = read_hardware(stack.device)
    batch, context = settings[0].batch, settings[0].context
    return make_manifest(
        stack,
        weight_hash(stack.model),
        corpus="random tokens",
        corpus_hash="",
        documents=batch,
        tokens=batch * context,
        window=context,
        families=(TIME, *map(str, plans)),
        tasks=tuple(map(str, settings)),
        seed=seed,
        settings={"machine": machine.get("accelerator", machine["processor"]), "graphs": graphs},
    )


def plan_rounds(
    stack: Stack, plans: Sequence[Plan], settings: Sequence[Setting], *, rounds: int, graphs: bool, seed: int
) -> RoundsTask[int]:
    time_plans = partial(round_times, stack, graphs=graphs, seed=seed)

    def time_one_round(number: int) -> Iterator[Score]:
        for (name, setting), milliseconds in time_plans(plans, settings, number).items():
            yield Score(TIME_ROUND, MILLISECONDS, milliseconds, plan=name, condition=str(setting), seed=number)

    def warm_up() -> Callable[[int], Iterator[Score]]:
        list(time_one_round(-1))
        return time_one_round

    return RoundsTask(
        TIME_ROUND,
        range(rounds),
        lambda row: int(row.seed or 0),
        warm_up,
        parts=len(plans),
        time_one=lambda: time_second_call(partial(time_plans, plans[:1], settings, 0)),
    )


def compute_times(
    plans: Sequence[Plan], settings: Sequence[Setting], rounds: Mapping[int, Sequence[Score]]
) -> list[Score]:
    """Return the median times over rounds, and the ratios to the first plan, with intervals."""
    by_text = {str(setting): setting for setting in settings}
    times: list[RoundTimes] = [
        {(row.plan or "", by_text[row.condition or ""]): row.value for row in rounds[number]}
        for number in sorted(rounds)
    ]
    return list(round_rows([str(plan) for plan in plans], settings, times))
