"""Compare lm-eval evaluations, given their result files. This module imports neither torch nor lm-eval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from layerwise.errors import RunError
from layerwise.measure.stats.paired_metrics import PairedMetric, find_aggregation, paired_rows
from layerwise.page import ReportData
from layerwise.results import Note
from layerwise.results.evaluations import EvaluationLog, disagreements, match
from layerwise.results.vocabulary import EVALUATED

MARGIN = 0.01  # smallest difference that matters, unless --fail-if-worse is given


def compare_evaluations(locations: Sequence[str], tolerated: float | None = None) -> ReportData:
    """Return the rows that compare each evaluation with the first one.

    Raises:
        RunError: If there are fewer than two evaluations, if a file is not an evaluation, or if the documents differ.
    """
    logs = [EvaluationLog.read(location) for location in locations]
    if len(logs) < 2:
        raise RunError(f"a comparison requires two evaluations, got only {locations[0]}. Run layerwise compare A B.")
    titles = [log.title for log in logs]
    baseline, *others = names = [log.title if titles.count(log.title) == 1 else log.location for log in logs]
    notes: list[str] = []
    each = zip(others, logs[1:], strict=True)
    pairs = [pair for variant, log in each for pair in _read_pairs(baseline, logs[0], variant, log, notes)]
    if not pairs:
        raise RunError(
            f"the evaluations have no score in common that can be compared: {'; '.join(notes)}. Evaluate all models on "
            "a task whose scores lm-eval averages over documents."
        )
    margin = tolerated or MARGIN
    manifest = {
        "model": f"{' and '.join(others)} compared with {baseline}",
        "corpus": ", ".join({pair.task: 0 for pair in pairs}),
        "evaluations": {name: log.location for name, log in zip(names, logs, strict=True)},
        "margin": margin,
    }
    remarks = tuple(Note(EVALUATED, text) for text in dict.fromkeys(notes))
    return ReportData(manifest, (), tuple(paired_rows(pairs, margin, tolerated)), notes=remarks)


def _read_pairs(
    against: str, before: EvaluationLog, variant: str, after: EvaluationLog, notes: list[str]
) -> Iterator[PairedMetric]:
    for name, log, alone in ((variant, after, before), (against, before, after)):
        if missing := [task for task in alone.tasks if task not in log.tasks]:
            notes.append(f"{name} was not evaluated on {', '.join(missing)}")
    for task in (each for each in before.tasks if each in after.tasks):
        (first, *earlier), second = before.tasks[task], after.tasks[task][0]
        again = [*earlier, *([second] if before.model == after.model else [])]
        if differing := max((disagreements(first, each) for each in again), default=0):
            share = f"{differing:,} of {len(first.documents):,} documents of {task}"
            notes.append(f"warning: two evaluations of {against} disagree on {share}")
        matched = match(f"{task} in {before.location} and {after.location}", first, second)
        for (metric, filtered), both in matched.items():
            stated = (log.stated.get((metric, filtered), math.nan) for log in (first, second))
            kinds = {find_aggregation(own, score) for own, score in zip(both, stated, strict=True)}
            aggregation, more = kinds.pop(), first.more_is_better.get(metric)
            name = metric if filtered == "none" else f"{metric}/{filtered}"
            if kinds or aggregation is None or more is None:
                notes.append(f"{name} of {task} is not compared: its score is not a ratio of sums over documents")
                continue
            baseline, other = (np.array(own, dtype=np.float64) for own in both)
            yield PairedMetric(task, name, variant, against, aggregation, more, baseline, other)
