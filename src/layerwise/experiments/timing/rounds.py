"""Rounds of timed passes that are stored as they end, so that a run that was killed goes on with the next one.

Measure `time_round`: of subject what was timed, task the setting, metric the number of the round, milliseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from layerwise.measure.cost.pass_time import RoundTimes, Setting
from layerwise.results import Run
from layerwise.results.rows import Score

TIME_ROUND = "time_round"


def measured_rounds(
    run: Run,
    settings: Sequence[Setting],
    rounds: int,
    once: Callable[[int], RoundTimes],
    progress: Callable[[float], None],
) -> list[RoundTimes]:
    """The rounds of a run: those that are stored, and behind them what `once(number)` times, up to `rounds`.

    Every session of the run warms up with a round that is not counted.
    """
    times = stored_rounds(run, settings)
    for number in range(len(times) - 1, rounds) if len(times) < rounds else ():
        timed = once(number)
        if number >= len(times):
            times.append(timed)
            run.store.replace_scores(TIME_ROUND, _rows(times))
        progress((number + 1) / rounds)
    return times


def stored_rounds(run: Run, settings: Sequence[Setting]) -> list[RoundTimes]:
    """The rounds that a run holds, the first one first."""
    by_text = {str(setting): setting for setting in settings}
    rounds: dict[int, dict[tuple[str, Setting], float]] = defaultdict(dict)
    for row in run.store.scores(TIME_ROUND):
        rounds[int(row.metric)][row.subject, by_text[row.task]] = row.value
    return [rounds[number] for number in sorted(rounds)]


def _rows(rounds: Sequence[RoundTimes]) -> list[Score]:
    return [
        Score(TIME_ROUND, name, str(setting), str(number), milliseconds)
        for number, times in enumerate(rounds)
        for (name, setting), milliseconds in times.items()
    ]
