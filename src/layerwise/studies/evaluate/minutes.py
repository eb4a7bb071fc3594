"""Choose how many minimal pairs of each paradigm to score in the given minutes, by timing one batch.

    seconds(limit) = models * seconds per pair * sum over paradigms of min(limit, number of its pairs)

The limit is stored in the run, so that a repeated command scores the same pairs.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from layerwise.data.suites.minimal_pairs import PairSet
from layerwise.errors import OptionError
from layerwise.measure.language.minimal_pairs import CHANCE, preferences
from layerwise.measure.language.pseudo_likelihood import SentenceScorer
from layerwise.measure.stats.estimate import t_factor
from layerwise.page.formatting import format_number
from layerwise.results import Rows, Score
from layerwise.runner.minimal_pairs import ScoringOptions
from layerwise.runner.price import time_second_call
from layerwise.runner.reporter import format_duration
from layerwise.runner.tasks import Study
from layerwise.runner.text_length import USED
from layerwise.studies.evaluate.subjects import Subjects, SuiteChoice

ABOUT_RUN, PAIRS = "run", "pairs_a_paradigm"
"""Measure and metric of the row that stores the number of pairs per paradigm."""

BATCH = 32
"""Number of pairs that are timed, spread over the suites."""


def limit_pairs(
    study: Study,
    subjects: Subjects,
    selection: SuiteChoice,
    minutes: float,
    began: float,
    options: ScoringOptions,
    *,
    overwrite: bool,
) -> SuiteChoice:
    """Limit the pairs per paradigm to what fits in `minutes` after `began`, and log the minimum detectable effect."""
    part = f"--minutes {minutes:g}"
    about = Rows(study.run.store.scores(ABOUT_RUN))
    recorded = about.value(metric=PAIRS, part=part)
    if recorded is None or overwrite:
        first = next(iter(subjects.models))
        limit, text = choose_limit(
            minutes,
            lambda: SentenceScorer.from_model(*subjects.open(first)),
            selection.pairs,
            models=len(subjects.models),
            began=began,
            options=options,
        )
        others = [row for row in about if (row.metric, row.part) != (PAIRS, part)]
        study.run.store.replace_scores(ABOUT_RUN, [*others, Score(ABOUT_RUN, PAIRS, float(limit), part=part)])
        study.reporter.log(text)
    else:
        limit = round(recorded)
    limited = replace(selection, pairs=tuple(each.first(limit) for each in selection.pairs))
    for text in describe_resolution(limited.pairs):
        study.reporter.log(text)
    return limited


def choose_limit(
    minutes: float,
    scorer: Callable[[], SentenceScorer],
    suites: Sequence[PairSet],
    *,
    models: int,
    began: float,
    options: ScoringOptions,
) -> tuple[int, str]:
    """Return the number of pairs per paradigm that fit in `minutes` after `began`, and a sentence about it."""
    start = time.monotonic()
    opened = scorer()
    opening = time.monotonic() - start
    pairs = [pair for each in suites for pair in each.pairs]
    count = min(BATCH, len(pairs))
    timed = [pairs[(2 * number + 1) * len(pairs) // (2 * count)] for number in range(count)]
    score = partial(preferences, opened, timed, temperature=options.temperature, too_long=options.too_long)
    per_pair = models * time_second_call(score) / len(timed)
    before = time.monotonic() - began + (models - 1) * opening
    sizes = [len(members) for each in suites for members in each.paradigms().values()]
    scored = [sum(min(limit, size) for size in sizes) for limit in range(max(sizes) + 1)]
    limit = bisect_right(scored, (60 * minutes * USED - before) / per_pair) - 1
    if limit < 1:
        needed = before + per_pair * len(sizes)
        raise OptionError(
            f"--minutes must be at least {int(needed / 60 / USED) + 1}, got {minutes:g}: one pair of each of the "
            f"{len(sizes):,} paradigms takes about {format_duration(needed)}. Pass more minutes, or fewer suites."
        )
    return limit, (
        f"pairs: {scored[limit]:,} of {sum(sizes):,}, for about {format_duration(scored[limit] * per_pair)} "
        f"(--minutes {minutes:g}); --limit {limit} selects the same pairs"
    )


def describe_resolution(suites: Sequence[PairSet]) -> Iterator[str]:
    """Describe the minimum detectable effect of each suite (80 % power): (t(0.975) + t(0.8)) * 0.5 / sqrt(pairs)."""
    for each in suites:
        count = len(each.pairs)
        if count > 1:
            mde = 100 * float(t_factor(count - 1.0, 1)) * CHANCE / count**0.5
            yield (f"minimum detectable effect (80 % power) of {each.suite}: {format_number(mde)} points above chance")
