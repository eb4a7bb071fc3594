"""The facts that decide a claim: rows with their intervals, the size that counts, and the nulls beside them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from layerwise.page.claims.claim import (
    Position,
    Span,
    beside_bound,
    more,
    needed,
    on_tokens,
    seen,
    span,
    widest,
)
from layerwise.page.data import ReportData
from layerwise.page.show import Show
from layerwise.page.text.number_format import between
from layerwise.page.text.wording import counted, listed
from layerwise.results.multiplicity import stretch
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT
from layerwise.results.vocabulary import CONTRAST, TRAINING, VALIDATION_LOSS

OF_THE_WHOLE: Mapping[str, None] = dict.fromkeys(("layer", "other", "condition", "amount", "against"))
"""The columns that are empty where a contrast is of no single layer or change."""

ALIKE = 0.05
"""Two costs that differ by less than this share of their mean are alike: the margin of relative differences."""

NULLS = {"baseline": "the baseline", "sequential": "the arm trained as long in order"}
"""The arms that were trained in order, and how they are called in a sentence."""

SHARES = (-1.0, 1.0)
"""What a difference of two shares, or a correlation, can be."""

OVER = 0.02
"""A training is over when at most this share of the fall of its validation loss came in its last quarter."""

OF_COSTS = "of the mean of both costs"
BARE = "The contrasts carry no intervals: there are fewer than 8 documents, or windows of one."

Facts = Mapping[str, object]
"""What a rule reads, by name: facts, several of them or none, what is true or false, and words of a sentence."""


@dataclass(frozen=True, slots=True)
class Fact:
    """Hold one number that a rule reads: its row, its margin, and the bound it is compared with, if any.

    Nothing is printed that is not `within` what such a number can be, where that is known.

    Format specifications in the template of a claim, which can be combined: `{cost:+}` with its sign, `{cost:%}` in
    percent, `{cost:=}` without its interval, `{cost:factor}` as the ratio of which it is the logarithm,
    `{cost:count layer}` as a number of layers, `{cost:tokens}` as the tokens behind it. Power: `{cost:seen nats}` the
    detectable contrast, `{cost:beside nats}` the same around the bound, `{cost:needed}` and `{cost:more}` how much more
    text, or how many seeds and images, would decide.
    """

    score: Score
    margin: float = ALIKE
    bound: float | None = None
    within: tuple[float, float] | None = None

    @property
    def bounds(self) -> Span | None:
        return span(self.score)

    @property
    def position(self) -> Position:
        """Where the interval lies, beside the bound or else by what counts; `open` without an interval."""
        if self.bounds is None:
            return "open"
        return self.bounds.position(self.margin) if self.bound is None else self.bounds.against(self.bound)

    def __format__(self, spec: str) -> str:
        how, _, words = spec.partition(" ")
        if how in _WRITTEN:
            return _WRITTEN[how](self, words)
        scale = 100.0 if "%" in how else 1.0
        score = self.score if self.within is None else clipped(self.score, *self.within)
        return Show(scale=scale, signed="+" in how, bounds="=" not in how).text(score)


def _undecided(fact: Fact, _: str) -> str:
    return BARE if fact.bounds is None else f"An interval holds both answers{fact:needed}."


def _needed(fact: Fact, _: str) -> str:
    margin = fact.margin if fact.bound is None else abs(fact.score.value - fact.bound)
    return needed(fact.score, margin)


def _factor(fact: Fact, _: str) -> str:
    ends = (None if end is None else math.exp(min(end, 50.0)) for end in (fact.score.low, fact.score.high))
    return between(math.exp(min(fact.score.value, 50.0)), *ends)


def _most(fact: Fact) -> float:
    return math.inf if fact.within is None else max(map(abs, fact.within))


_WRITTEN: Mapping[str, Callable[[Fact, str], str]] = {
    "factor": _factor,
    "count": lambda fact, noun: counted(int(fact.score.value), noun),
    "tokens": lambda fact, _: on_tokens([fact.score]),
    "seen": lambda fact, unit: seen(fact.score, fact.margin, unit, most=_most(fact)),
    "seen%": lambda fact, unit: seen(fact.score, fact.margin, unit, scale=100, most=_most(fact)),
    "beside": lambda fact, unit: beside_bound(fact.score, fact.bound or 0.0, unit, fact.within or SHARES),
    "needed": _needed,
    "undecided": _undecided,
    "more": lambda fact, what: more(fact.score, fact.margin, what or "the seeds and images"),
}


@dataclass(frozen=True, slots=True)
class Several:
    """Hold facts that are read together, by name; a run would have to find `together` of them (default: all).

    A template lists them: `item` is the template of a fact and its name, `lead` comes before the list, and
    `{orders:at below}` lists the names of those at a position. Power is that of the least precise fact.
    """

    facts: Mapping[str, Fact]
    item: str = "{0}"
    lead: str = ""
    together: int | None = None

    @property
    def least_known(self) -> Fact:
        """Return the least precise fact, with the mde at which as many facts as a run must find are found together.

        The widest has an mde of z[.975] + z[.8] standard errors, stretched for that number of contrasts.
        """
        score = widest(fact.score for fact in self.facts.values())
        least = next(fact for fact in self.facts.values() if fact.score is score)
        factor = stretch(self.together or len(self.facts))
        return replace(least, score=replace(score, mde=score.mde and score.mde * factor))

    def at(self, *positions: str) -> list[str]:
        return [name for name, fact in self.facts.items() if fact.position in positions]

    def __format__(self, spec: str) -> str:
        how = spec.partition(" ")[0]
        if not how:
            words = listed([self.item.format(fact, name) for name, fact in self.facts.items()])
            return f"{self.lead}{words}" if words else ""
        if how == "at":
            return listed(self.at(*spec.split()[1:]))
        if how == "undecided" and not is_known(self):
            return BARE
        if how.startswith("seen"):
            return format(self.least_known, spec)
        # How much more would decide is told of one contrast, whatever else is found with it.
        return format(replace(self, together=1).least_known, spec)


def states(fact: object) -> frozenset[Position]:
    if isinstance(fact, Fact):
        return frozenset({fact.position})
    return frozenset(each.position for each in fact.facts.values()) if isinstance(fact, Several) else frozenset()


def is_known(fact: object) -> bool:
    if isinstance(fact, Fact):
        return fact.bounds is not None
    return isinstance(fact, Several) and bool(fact.facts) and all(each.bounds for each in fact.facts.values())


@dataclass(frozen=True, slots=True)
class Read:
    """Describe how a fact is read from the contrasts: its metric, margin and bound; `of` names another claim.

    Several metrics, keyed by the name of each in a sentence, give `Several`: with `optional` only those that were
    measured, with `known` only those that have an interval.
    """

    metric: str | Mapping[str, str]
    margin: float = ALIKE
    bound: float | None = None
    optional: bool = False
    of: str = ""
    known: bool = False
    item: str = "{0}"
    lead: str = ""
    together: int | None = None
    within: tuple[float, float] | None = None

    def fact(self, rows: Mapping[str, Score]) -> Fact | Several | None:
        if isinstance(self.metric, str):
            return self._fact(rows[self.metric]) if self.metric in rows else None
        if not self.optional and not set(self.metric.values()) <= set(rows):
            return None
        facts = {
            name: self._fact(rows[metric])
            for name, metric in self.metric.items()
            if metric in rows and (not self.known or span(rows[metric]))
        }
        return Several(facts, self.item, self.lead, self.together)

    def _fact(self, row: Score) -> Fact:
        return Fact(row, self.margin, self.bound, self.within)


def group(*metrics: str, margin: float = ALIKE, optional: bool = False, together: int | None = None) -> Read:
    return Read({metric: metric for metric in metrics}, margin, optional=optional, together=together)


def nulls(metric: str, margin: float = ALIKE, bound: float | None = None, **words: Any) -> Read:
    """The same metric of every null that has an interval: rows `<metric>@<arm>`; `words` are what `Read` takes."""
    by_name = {called: f"{metric}@{arm}" for arm, called in NULLS.items()}
    return Read(by_name, margin, bound, optional=True, known=True, **{"item": "", **words})


@dataclass(frozen=True, slots=True)
class Contrasts:
    """Read the contrasts of a claim, a fact for each `Read`; None if one that is not optional was not measured.

    `tokens` is the number of tokens behind all of the rows; `words` adds other entries.
    """

    claim: str
    reads: Mapping[str, Read]
    task: str = "all"
    words: Callable[[ReportData], Facts] | None = None
    columns: Mapping[str, object] = field(default_factory=dict)

    def __call__(self, data: ReportData) -> Facts | None:
        rows = contrast_rows(data, self.claim, self.task, **self.columns)
        facts: dict[str, object] = {"tokens": on_tokens(rows.values()), **(self.words(data) if self.words else {})}
        for name, read in self.reads.items():
            fact = read.fact(contrast_rows(data, read.of) if read.of else rows)
            if fact is None and not read.optional:
                return None
            facts[name] = fact
        return facts


def contrast_rows(data: ReportData, claim: str, task: str = "all", **columns: Any) -> dict[str, Score]:
    about = {**OF_THE_WHOLE, **columns}
    return {row.metric: row for row in data.rows.where(measure=CONTRAST, claim=claim, task=task, **about)}


def contrast_tasks(data: ReportData, claim: str, metric: str, **columns: Any) -> dict[str, Score]:
    return {row.task: row for row in data.rows.where(measure=CONTRAST, metric=metric, claim=claim, **columns)}


def training_ends(*arms: str) -> Callable[[ReportData], Facts]:
    """Return a function that reads from a run which of `arms` were still learning when their training ended."""

    def facts(data: ReportData) -> Facts:
        falling = [arm for arm in arms if _is_falling(data, arm)]
        return {"falling": bool(falling), "unfinished": listed(falling)}

    return facts


def _is_falling(data: ReportData, arm: str) -> bool:
    """Check whether the validation loss of some seed is not shown to have stopped falling; False if none was noted."""
    rows = data.rows.where(measure=TRAINING, metric=VALIDATION_LOSS, arm=arm, amount=PRESENT, condition=None)
    for own in rows.by("seed").values():
        losses = {row.amount or 0.0: row.value for row in own}
        early = [loss for step, loss in losses.items() if step <= 0.75 * max(losses)]
        if not early or min(early) - min(losses.values()) > OVER * (losses[min(losses)] - min(losses.values())):
            return True
    return False


def facts_of(rows: Mapping[str, Score], metrics: Iterable[str], **of: object) -> Several:
    return Several({metric: Fact(rows[metric]) for metric in metrics}, **of)  # type: ignore[arg-type]


def clipped(score: Score, least: float = -1.0, most: float = 1.0) -> Score:
    low, high = score.low, score.high
    return replace(score, low=low and max(least, low), high=high and min(most, high))


def short_of(score: Score, whole: float) -> Score:
    low, high = (None if end is None else whole - end for end in (score.high, score.low))
    return replace(score, value=whole - score.value, low=low, high=high)


def scaled(score: Score, factor: float) -> Score:
    if score.low is None or score.high is None:
        return replace(score, value=factor * score.value)
    low, high = sorted((factor * score.low, factor * score.high))
    return replace(score, value=factor * score.value, low=low, high=high)
