"""How many pairs of each paradigm are scored in the minutes that are given, at the pace of the model on such pairs.

    seconds(limit) = models * (opening + paradigms * fixed + each * sum over paradigms of min(limit, its pairs))

A clock decides, so the number is a row of the run, and the same command scores the same pairs again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from layerwise.data.suites.minimal_pairs import PairSet
from layerwise.errors import OptionError
from layerwise.experiments.engines.forecast import ABOUT_RUN
from layerwise.experiments.reporter import duration
from layerwise.experiments.text_length import LOOK, REST, USED, ReadingPace
from layerwise.measure.language.minimal_pairs import CHANCE, preferences
from layerwise.measure.language.pseudo_likelihood import SentenceScorer, TooLong
from layerwise.measure.stats.statistics import minimum_detectable_effect
from layerwise.report.text.number_format import tidy
from layerwise.results import Rows, Run, Score

PAIRS = "pairs_a_paradigm"
"""The metric of the row that says how many pairs of each paradigm are scored."""

FEWEST = 8
"""Pairs that the pace is measured on first."""


def recorded_limit(run: Run, minutes: float) -> int | None:
    """The pairs of each paradigm that this run scores in so many minutes; `None` where it has not begun to."""
    value = Rows(run.store.scores(ABOUT_RUN)).value(metric=PAIRS, part=_part(minutes))
    return None if value is None else round(value)


def record_limit(run: Run, minutes: float, limit: int) -> None:
    """Keep the pairs of each paradigm that so many minutes allow."""
    own = Score(ABOUT_RUN, PAIRS, float(limit), part=_part(minutes))
    others = [row for row in run.store.scores(ABOUT_RUN) if (row.metric, row.part) != (own.metric, own.part)]
    run.store.replace_scores(ABOUT_RUN, [*others, own])


def _part(minutes: float) -> str:
    return f"--minutes {minutes:g}"


def scoring_pace(
    scorer: SentenceScorer, suites: Sequence[PairSet], seconds: float, *, temperature: float, too_long: TooLong
) -> ReadingPace:
    """What a pair takes, and what a paradigm takes beside its pairs, measured for about so many seconds.

    The pairs that are measured lie at equal distances in all suites, so that they are as long as all are.
    """
    pairs = [pair for each in suites for pair in each.pairs]

    def seconds_of(count: int) -> float:
        chosen = [pairs[number * len(pairs) // count] for number in range(count)]
        begun = time.perf_counter()
        preferences(scorer, chosen, temperature=temperature, too_long=too_long)
        return time.perf_counter() - begun

    few = min(FEWEST, len(pairs))
    seconds_of(few)  # what is slow once only
    first = seconds_of(few)
    more = max(2 * few, min(int(few * seconds / max(first, 1e-9)), len(pairs)))
    return ReadingPace.through([(few, first), (more, seconds_of(more))])


def limit_within(pace: ReadingPace, suites: Sequence[PairSet], seconds: float, *, models: int, opening: float) -> int:
    """The most pairs of each paradigm that `models` models score in so many seconds; 0 where one pair of each is more.

    >>> from layerwise.data.suites.minimal_pairs import MinimalPair
    >>> pairs = PairSet("p", "p", tuple(MinimalPair("a", "b", name, "", "") for name in "xxxxy"))
    >>> [limit_within(ReadingPace(1.0, 1.0), [pairs], each, models=1, opening=0.0) for each in (3.0, 5.5, 60.0)]
    [0, 2, 4]
    """
    sizes = [len(members) for each in suites for members in each.paradigms().values()]
    limit = 0
    while limit < max(sizes) and _seconds(pace, sizes, limit + 1, models, opening) <= seconds:
        limit += 1
    return limit


def _seconds(pace: ReadingPace, sizes: Sequence[int], limit: int, models: int, opening: float) -> float:
    pairs = sum(min(limit, size) for size in sizes)
    return models * (opening + len(sizes) * pace.fixed + pace.each * pairs)


def chosen_limit(
    minutes: float,
    scorer: Callable[[], SentenceScorer],
    suites: Sequence[PairSet],
    *,
    models: int,
    began: float,
    temperature: float,
    too_long: TooLong,
) -> tuple[int, str]:
    """The pairs of each paradigm that minutes allow, counted from `began` on `time.monotonic`, and a sentence on them.

    Raises `OptionError` for minutes in which one pair of each paradigm cannot be scored.
    """
    begun = time.monotonic()
    opened = scorer()
    opening = time.monotonic() - begun
    pace = scoring_pace(opened, suites, LOOK * 60 * minutes, temperature=temperature, too_long=too_long)
    left = 60 * minutes * USED - REST - (time.monotonic() - began)
    limit = limit_within(pace, suites, left, models=models, opening=opening)
    sizes = [len(members) for each in suites for members in each.paradigms().values()]
    if not limit:
        needed = _seconds(pace, sizes, 1, models, opening) + REST + time.monotonic() - began
        raise OptionError(
            f"--minutes {minutes:g} is too little: a pair of each of {len(sizes):,} paradigms takes about "
            f"{duration(needed)}; give --minutes {int(needed / 60 / USED) + 1}, or fewer suites"
        )
    scored = sum(min(limit, size) for size in sizes)
    took = duration(_seconds(pace, sizes, limit, models, opening))
    return limit, (
        f"pairs: {scored:,} of {sum(sizes):,}, for about {took} (--minutes {minutes:g}); --limit {limit} scores the "
        "same again"
    )


def resolutions(suites: Sequence[PairSet]) -> Iterator[str]:
    """The distance from chance that 80 of 100 such runs find in the accuracy of each suite, at most.

    mde = (t[.975] + t[.8]) * 0.5 / sqrt(pairs)
    """
    for each in suites:
        count = len(each.pairs)
        if count > 1:
            error = CHANCE / count**0.5
            mde = 100 * float(minimum_detectable_effect(error, count))
            yield f"resolution: {each.suite} about {tidy(mde)} points from chance, which 80 of 100 such runs find"
