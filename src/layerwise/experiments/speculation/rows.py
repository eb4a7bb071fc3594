"""The rows of speculative decoding.

speculation_draft    of every candidate that was compared (`plan`): `agreement` with the whole model's arg-max, the
                     `length` that promises most, the speed-up in layer passes (`bound`) and the `tokens_per_second`
                     that are expected of it; `chosen` is the one that was generated with. Without a plan, of condition
                     `generate`: what is expected of plain decoding
speculation_prompt   of each prompt (`seed` is its number): `seconds` of each way of decoding (`condition`), and what
                     was counted
speculation          of the draft over all prompts: `bound`, `acceptance` and counts; tokens per second of each way
                     (`condition`), and `ratio`, its seconds over those with the draft. Intervals are Student's over
                     prompts
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from layerwise.experiments.speculation.trial import PromptTrial
from layerwise.measure.stats.statistics import student_interval
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import (
    CHOSEN,
    DRAFTED,
    PLAIN,
    SPECULATION,
    SPECULATION_DRAFT,
    SPECULATION_PROMPT,
    TOKENS_PER_SECOND,
)
from layerwise.search.drafts import DraftCandidate
from layerwise.stack.speculation import LayerPasses

VERDICTS = ("equal", "tie", "other")


def draft_rows(candidates: Iterable[DraftCandidate], chosen: Plan, plain_rate: float) -> list[Score]:
    """What is expected of every draft, and which was chosen."""
    rows = [Score(SPECULATION_DRAFT, TOKENS_PER_SECOND, plain_rate, condition=PLAIN)]
    for each in candidates:
        figures = {
            "agreement": each.agreement, "length": each.length, "bound": each.bound, TOKENS_PER_SECOND: each.rate,
        }  # fmt: skip
        rows += [Score(SPECULATION_DRAFT, name, float(value), plan=str(each.plan)) for name, value in figures.items()]
    return [*rows, Score(SPECULATION_DRAFT, CHOSEN, 1.0, plan=str(chosen))]


def prompt_rows(trials: Sequence[PromptTrial], first: int = 0) -> list[Score]:
    """What every prompt gave, counted from the number of the `first`."""
    rows = []
    for number, trial in enumerate(trials, start=first):
        counts = {name: getattr(trial.passes, name) for name in LayerPasses.COUNTED}
        counts |= {"written": trial.written, **{each: trial.verdict == each for each in VERDICTS}}
        own = [("seconds", way, value) for way, value in trial.seconds.items()]
        own += [(name, DRAFTED, float(value)) for name, value in counts.items()]
        rows += [Score(SPECULATION_PROMPT, name, value, seed=number, condition=way) for name, way, value in own]
    return rows


def stored_trials(rows: Iterable[Score], depth: int, draft: Plan) -> list[PromptTrial]:
    """The prompts that `prompt_rows` wrote, the first one first."""
    trials = []
    for _, prompt in sorted(Rows(rows).by("seed").items()):
        seconds = {way: row.value for way, row in prompt.where(metric="seconds").along("condition").items()}
        counted = {name: int(row.value) for name, row in prompt.where(condition=DRAFTED).along("metric").items()}
        passes = LayerPasses(depth, len(draft.steps()), **{name: counted[name] for name in LayerPasses.COUNTED})
        verdict = next(each for each in VERDICTS if counted[each])
        trials.append(PromptTrial(seconds, passes, counted["written"], verdict))
    return trials


def speculation_rows(draft: Plan, trials: Sequence[PromptTrial]) -> list[Score]:
    """The figures of a draft over all prompts."""
    own: dict[str, Any] = {"plan": str(draft)}
    counted = {each: [getattr(trial.passes, each) for trial in trials] for each in LayerPasses.COUNTED}
    totals = [trial.passes.total for trial in trials]
    plain = [trial.passes.tokens * trial.passes.depth for trial in trials]
    sums = {each: sum(values) for each, values in counted.items()}
    sums |= {"layer_passes": sum(totals), **{each: sum(t.verdict == each for t in trials) for each in VERDICTS}}
    rows = [
        *_ratio("bound", plain, totals, **own),
        *map(_share, _ratio("acceptance", counted["accepted"], counted["draft_passes"], **own)),
        *(Score(SPECULATION, name, float(value), **own) for name, value in sums.items()),
    ]
    seconds: Mapping[str, list[float]] = {way: [trial.seconds[way] for trial in trials] for way in trials[0].seconds}
    written = [trial.written for trial in trials]
    for way, took in seconds.items():
        rows += _ratio(TOKENS_PER_SECOND, written, took, condition=way, **own)
        if way != DRAFTED:
            rows += _ratio("ratio", took, seconds[DRAFTED], condition=way, **own)
    return rows


def _share(score: Score) -> Score:
    """The row of a share of one, whose interval ends at 0 and at 1."""
    if score.low is None or score.high is None:
        return score
    return replace(score, low=max(0.0, score.low), high=min(1.0, score.high))


def _ratio(metric: str, above: Sequence[float], below: Sequence[float], **columns: Any) -> Iterator[Score]:
    """A ratio of sums over the prompts that have something `below`, with an interval where several have; else none."""
    having = np.asarray(below) > 0
    over, under = (np.asarray(values, dtype=np.float64)[having] for values in (above, below))
    if not under.size:
        return
    row = Score(SPECULATION, metric, float(over.sum() / under.sum()), documents=under.size, **columns)
    if under.size < 2:
        yield row
        return
    estimate = student_interval(over, under)
    yield replace(row, low=float(estimate.low[0]), high=float(estimate.high[0]))
