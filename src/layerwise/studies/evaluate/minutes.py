"""The number of pairs per paradigm that fits the given minutes, from one timed batch.

    seconds(limit) = models * seconds of a pair * sum over paradigms of min(limit, its pairs)

The number is stored as a row of the run, so that a repeated command scores the same pairs.
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
from layerwise.studies.evaluate.subjects import Subjects
from layerwise.studies.evaluate.suites import SuiteChoice

ABOUT_RUN, PAIRS = "run", "pairs_a_paradigm"
"""The measure and the metric of the row that says how many pairs of each paradigm are scored."""

BATCH = 32
"""Pairs that are timed, from all over the suites."""


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
    """Keep as many pairs of each paradigm as fit the minutes since `began`, and report the effect that they resolve."""
    part = f"--minutes {minutes:g}"
    about = Rows(study.run.store.scores(ABOUT_RUN))
    recorded = about.value(metric=PAIRS, part=part)
    if recorded is None or overwrite:
        first = next(iter(subjects.models))
        limit, text = chosen_limit(
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
    for text in resolutions(limited.pairs):
        study.reporter.log(text)
    return limited


def chosen_limit(
    minutes: float,
    scorer: Callable[[], SentenceScorer],
    suites: Sequence[PairSet],
    *,
    models: int,
    began: float,
    options: ScoringOptions,
) -> tuple[int, str]:
    """Return the pairs per paradigm that minutes allow since `began` (`time.monotonic`), and a sentence on them.

    Raises `OptionError` if not even one pair of each paradigm fits.
    """
    begun = time.monotonic()
    opened = scorer()
    opening = time.monotonic() - begun
    pairs = [pair for each in suites for pair in each.pairs]
    count = min(BATCH, len(pairs))
    chosen = [pairs[(2 * number + 1) * len(pairs) // (2 * count)] for number in range(count)]
    score = partial(preferences, opened, chosen, temperature=options.temperature, too_long=options.too_long)
    of_pair = models * time_second_call(score) / len(chosen)
    before = time.monotonic() - began + (models - 1) * opening
    sizes = [len(members) for each in suites for members in each.paradigms().values()]
    scored = [sum(min(limit, size) for size in sizes) for limit in range(max(sizes) + 1)]
    limit = bisect_right(scored, (60 * minutes * USED - before) / of_pair) - 1
    if limit < 1:
        needed = before + of_pair * len(sizes)
        raise OptionError(
            f"--minutes {minutes:g} is too little: a pair of each of {len(sizes):,} paradigms takes about "
            f"{format_duration(needed)}; give --minutes {int(needed / 60 / USED) + 1}, or fewer suites"
        )
    return limit, (
        f"pairs: {scored[limit]:,} of {sum(sizes):,}, for about {format_duration(scored[limit] * of_pair)} "
        f"(--minutes {minutes:g}); --limit {limit} scores the same again"
    )


def resolutions(suites: Sequence[PairSet]) -> Iterator[str]:
    """Yield the detectable effect of each suite at 80% power: (t[.975] + t[.8]) * 0.5 / sqrt(pairs)."""
    for each in suites:
        count = len(each.pairs)
        if count > 1:
            mde = 100 * float(t_factor(count - 1.0, 1)) * CHANCE / count**0.5
            yield (
                f"resolution: {each.suite} about {format_number(mde)} points from chance, "
                "which 80 of 100 such runs find"
            )
