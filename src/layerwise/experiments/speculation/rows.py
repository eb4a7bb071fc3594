"""The rows of speculative decoding.

speculation_draft    of every candidate that was compared: `agreement` with the whole model's arg-max, the `length`
                     that promises most, the speed-up in layer passes (`bound`) and the `tokens_per_second` that
                     are expected of it; `chosen` is the one that was generated with. The subject `generate` has
                     what is expected of plain decoding
speculation_prompt   of each prompt, by its number: `seconds` and what was counted, by the way of decoding
speculation          of the draft over all prompts: `bound`, `acceptance` and counts; tokens per second of each way,
                     and `ratio`, its seconds over those with the draft. Intervals are Student's over prompts
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from layerwise.experiments.speculation.trial import DRAFTED, PLAIN, PromptTrial
from layerwise.measure.stats.statistics import student_interval
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.search.drafts import DraftCandidate
from layerwise.stack.speculation import LayerPasses

DRAFT, PROMPT, SPECULATION = "speculation_draft", "speculation_prompt", "speculation"
VERDICTS = ("equal", "tie", "other")
RATE = "tokens_per_second"


def draft_rows(candidates: Iterable[DraftCandidate], chosen: Plan, plain_rate: float) -> list[Score]:
    """What is expected of every draft, and which was chosen."""
    rows = [Score(DRAFT, PLAIN, "select", RATE, plain_rate)]
    for each in candidates:
        figures = {"agreement": each.agreement, "length": each.length, "bound": each.bound, RATE: each.rate}
        rows += [Score(DRAFT, str(each.plan), "select", metric, float(value)) for metric, value in figures.items()]
    return [*rows, Score(DRAFT, str(chosen), "select", "chosen", 1.0)]


def prompt_rows(trials: Sequence[PromptTrial], first: int = 0) -> list[Score]:
    """What every prompt gave, counted from the number of the `first`."""
    rows = []
    for number, trial in enumerate(trials, start=first):
        counts = {name: getattr(trial.passes, name) for name in LayerPasses.COUNTED}
        counts |= {"written": trial.written, **{each: trial.verdict == each for each in VERDICTS}}
        rows += [Score(PROMPT, str(number), name, "seconds", value) for name, value in trial.seconds.items()]
        rows += [Score(PROMPT, str(number), DRAFTED, name, float(value)) for name, value in counts.items()]
    return rows


def stored_trials(rows: Iterable[Score], depth: int, draft: Plan) -> list[PromptTrial]:
    """The prompts that `prompt_rows` wrote, the first one first."""
    numbers: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows:
        numbers.setdefault(row.subject, {})[row.task, row.metric] = row.value
    trials = []
    for _, values in sorted(numbers.items(), key=lambda each: int(each[0])):
        seconds = {way: value for (way, metric), value in values.items() if metric == "seconds"}
        counts = {name: int(values[DRAFTED, name]) for name in LayerPasses.COUNTED}
        verdict = next(each for each in VERDICTS if values[DRAFTED, each])
        passes = LayerPasses(depth, len(draft.steps()), **counts)
        trials.append(PromptTrial(seconds, passes, int(values[DRAFTED, "written"]), verdict))
    return trials


def speculation_rows(draft: Plan, trials: Sequence[PromptTrial]) -> list[Score]:
    """The figures of a draft over all prompts."""
    name = str(draft)
    counted = {each: [getattr(trial.passes, each) for trial in trials] for each in LayerPasses.COUNTED}
    totals = [trial.passes.total for trial in trials]
    plain = [trial.passes.tokens * trial.passes.depth for trial in trials]
    rows = [
        *_ratio(name, "all", "bound", plain, totals),
        *map(_share, _ratio(name, "all", "acceptance", counted["accepted"], counted["draft_passes"])),
        *(Score(SPECULATION, name, "all", each, float(sum(values))) for each, values in counted.items()),
        Score(SPECULATION, name, "all", "layer_passes", float(sum(totals))),
        *(Score(SPECULATION, name, "all", each, float(sum(t.verdict == each for t in trials))) for each in VERDICTS),
    ]
    seconds: Mapping[str, list[float]] = {way: [trial.seconds[way] for trial in trials] for way in trials[0].seconds}
    written = [trial.written for trial in trials]
    for way, took in seconds.items():
        rows += _ratio(name, way, RATE, written, took)
        if way != DRAFTED:
            rows += _ratio(name, way, "ratio", took, seconds[DRAFTED])
    return rows


def _share(score: Score) -> Score:
    """The row of a share of one, whose interval ends at 0 and at 1."""
    if score.low is None or score.high is None:
        return score
    return replace(score, low=max(0.0, score.low), high=min(1.0, score.high))


def _ratio(name: str, task: str, metric: str, above: Sequence[float], below: Sequence[float]) -> Iterator[Score]:
    """A ratio of sums over the prompts that have something `below`, with an interval where several have; else none."""
    having = np.asarray(below) > 0
    over, under = (np.asarray(values, dtype=np.float64)[having] for values in (above, below))
    if not under.size:
        return
    row = Score(SPECULATION, name, task, metric, float(over.sum() / under.sum()), documents=under.size)
    if under.size < 2:
        yield row
        return
    estimate = student_interval(over, under)
    yield replace(row, low=float(estimate.low[0]), high=float(estimate.high[0]))
