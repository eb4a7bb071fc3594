"""Whether the intervals of a mix of tasks hold what they promise: simulated studies of 2, 3 and 5 unlike tasks.

    python benchmarks/strata.py                # about four minutes on one core; no model

Documents of a task have log-normal lengths, and plans that cost them so many nats a token: the level of the task, and
what a document differs from it, which is normal. Every study has its own documents; what holds in the mix is the sum of
the levels by the tasks' shares of its tokens. Four verbs call these functions for their intervals, and the studies go
through them as losses (`layerwise.results.Loss`):

    sweep      `measure.stats.effects.effects`: delta_nll and nll of the task `all`
    search     `search.confirm`: delta_nll and `again` of `losses_above` (another text of the same tasks), the gap of
               `winners_curse`, and `above_chosen` of `against_arms`
    frontier   `measure.cost.latency_verdict.verdict_rows`: above_rival; its delta_nll is `effects.differences`
    claims     `measure.contrasts.contrast.Resampled`: one effect, a difference of two, and a quotient of two, which is
               what `report` reads a claim off

Bars: each interval at 95 % covers in .93 to .97 of the studies, and is at most 1.1 times as wide as the stratified
estimate by hand, sum_h w_h r_h +- t sqrt(sum_h w_h^2 s_h^2 / n_h) with Satterthwaite's t (Cochran 1977, section 5.4;
of a quotient Fieller's interval of the same variances, 1954).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from layerwise.measure.contrasts.contrast import Resampled, Statistic, arms, first, less
from layerwise.measure.cost.latency_verdict import LatencyPoint, verdict_rows
from layerwise.measure.cost.pass_time import Setting
from layerwise.measure.stats.effects import ArmLosses, differences, effects
from layerwise.plan import Plan
from layerwise.results import Loss, Score
from layerwise.results.vocabulary import ABOVE_CHOSEN, ABOVE_RIVAL, AGAIN, DELTA, GAP, PARALLEL
from layerwise.search.confirm import against_arms, losses_above, winners_curse

Numbers = NDArray[np.float64]

WHOLE = Plan.identity(4)
PLAN = Plan.parse("0-2")

LEAST, MOST, WIDEST = 0.93, 0.97, 1.1


@dataclass(frozen=True)
class Task:
    """So many documents of about so many tokens, and what a plan costs a token: the level, and the spread over them."""

    documents: int
    tokens: int
    level: float
    spread: float


MIXES: Mapping[int, tuple[Task, ...]] = {
    2: (Task(32, 300, 0.05, 0.2), Task(120, 12, 2.0, 1.5)),
    3: (Task(20, 250, 0.2, 0.1), Task(60, 40, 0.5, 0.6), Task(150, 8, -0.5, 2.0)),
    5: (
        Task(16, 200, 0.1, 0.3),
        Task(24, 120, 0.6, 0.2),
        Task(40, 60, -0.3, 0.5),
        Task(80, 20, 1.5, 1.0),
        Task(160, 6, 3.0, 2.0),
    ),
}


@dataclass(frozen=True)
class Text:
    """The documents of a text: the task of each, and its tokens."""

    tasks: tuple[Task, ...]
    of: NDArray[np.intp]
    tokens: Numbers

    @classmethod
    def drawn(cls, tasks: tuple[Task, ...], draw: np.random.Generator) -> Text:
        of = np.repeat(np.arange(len(tasks)), [task.documents for task in tasks])
        typical = np.array([task.tokens for task in tasks])[of]
        return cls(tasks, of, np.maximum(1, np.rint(typical * np.exp(draw.normal(0, 0.5, of.size)))))

    def per_token(self, name: str) -> Numbers:
        """The level, or the spread, of the task of every document."""
        return np.array([getattr(task, name) for task in self.tasks])[self.of]

    def changes(self, studies: int, draw: np.random.Generator, scale: float = 1.0) -> Numbers:
        """What a plan costs each document, in nats, in so many studies."""
        noise = draw.normal(0, 1, (studies, self.of.size))
        return scale * self.tokens * (self.per_token("level") + self.per_token("spread") * noise)

    def truth(self, scale: float = 1.0) -> float:
        """What holds in the mix."""
        return float(scale * (self.tokens * self.per_token("level")).sum() / self.tokens.sum())

    def rows(self, nats: Mapping[str, Numbers]) -> list[Loss]:
        """The losses of plans on every document, from what each costs there."""
        return [
            Loss(plan, f"task {task}", f"d{at}", 0, float(own[at]), int(self.tokens[at]), 0)
            for plan, own in nats.items()
            for at, task in enumerate(self.of.tolist())
        ]

    def variances(self, nats: Numbers) -> tuple[Numbers, Numbers]:
        """What every task adds to the variance of each study's mix, and its degrees of freedom."""
        parts = []
        for task in range(len(self.tasks)):
            own, tokens = nats[:, self.of == task], self.tokens[self.of == task]
            rest = own - (own.sum(axis=1) / tokens.sum())[:, None] * tokens
            weight = tokens.sum() / self.tokens.sum()
            parts.append(weight**2 * (rest**2).sum(axis=1) * tokens.size / (tokens.size - 1) / tokens.sum() ** 2)
        return np.array(parts), np.array([task.documents - 1.0 for task in self.tasks])


def width_by_hand(*texts: tuple[Text, Numbers]) -> Numbers:
    """The width of Student's interval of a sum over texts and their tasks, for every study."""
    error, t = error_by_hand(*texts)
    return 2 * error * t


def error_by_hand(*texts: tuple[Text, Numbers]) -> tuple[Numbers, Numbers]:
    """The standard error of such a sum, and Student's quantile at Satterthwaite's degrees of freedom."""
    each = [text.variances(nats) for text, nats in texts]
    variances = np.concatenate([own for own, _ in each])
    freedom = np.concatenate([own for _, own in each])[:, None]
    total = variances.sum(axis=0)
    return np.sqrt(total), np.asarray(stats.t.ppf(0.975, total**2 / (variances**2 / freedom).sum(axis=0)))


def quotient_by_hand(text: Text, above: Numbers, below: Numbers) -> Numbers:
    """The width of Fieller's interval of a quotient of two effects."""
    quotient, mean = above.sum(axis=1) / below.sum(axis=1), below.sum(axis=1) / text.tokens.sum()
    (apart, t), (top, _), (bottom, _), (both, _) = (
        error_by_hand((text, nats)) for nats in (above - quotient[:, None] * below, above, below, above + below)
    )
    shared = (both**2 - top**2 - bottom**2) / 2
    g = (t * bottom / mean) ** 2
    return np.asarray(2 * t / mean / (1 - g) * np.sqrt(apart**2 - g * (top**2 - (shared / bottom) ** 2)))


@dataclass(frozen=True)
class Answer:
    """Intervals of some studies, (studies,) each: what they ought to hold, and how wide they would be by hand."""

    low: Numbers
    high: Numbers
    truth: Numbers | float
    by_hand: Numbers

    @classmethod
    def of(cls, rows: list[Score], truth: Numbers | float, by_hand: Numbers) -> Answer:
        bounds = np.array([(row.low, row.high) for row in rows], dtype=float)
        assert bounds.shape == (by_hand.size, 2)
        return cls(bounds[:, 0], bounds[:, 1], truth, by_hand)


def names(count: int) -> list[str]:
    return [f"p{number}" for number in range(count)]


def sweep(text: Text, studies: int, draw: np.random.Generator) -> Iterator[tuple[str, Answer]]:
    """Every plan is a study: its interval does not depend on which others stand beside it."""
    base, changes = 2.0 * text.tokens, text.changes(studies, draw)
    rows = text.rows({"b": base, **dict(zip(names(studies), base + changes, strict=True))})
    scores = [row for row in effects(rows, "b", by_task=False) if row.plan != "b"]
    by_hand = width_by_hand((text, changes))
    for metric, truth in (("delta_nll", text.truth()), ("nll", 2.0 + text.truth())):
        yield f"sweep: {metric}", Answer.of([row for row in scores if row.metric == metric], truth, by_hand)


def search(text: Text, studies: int, draw: np.random.Generator) -> Iterator[tuple[str, Answer]]:
    base, changes = 2.0 * text.tokens, text.changes(studies, draw)
    rows = text.rows({str(WHOLE): base, **dict(zip(names(studies), base + changes, strict=True))})
    scores = losses_above(rows, WHOLE, "report", seed=0)
    by_hand = width_by_hand((text, changes))
    another = text.changes(studies, draw).sum(axis=1) / text.tokens.sum()
    for metric, truth, width in ((DELTA, text.truth(), by_hand), (AGAIN, another, np.sqrt(2) * by_hand)):
        yield f"search: {metric}", Answer.of([row for row in scores if row.metric == metric], truth, width)

    searched = Text.drawn(text.tasks, draw)
    others = searched.changes(studies, draw)
    gaps = [
        winners_curse(
            *(
                each.rows({str(WHOLE): 2.0 * each.tokens, str(PLAN): 2.0 * each.tokens + nats[study]})
                for each, nats in ((searched, others), (text, changes))
            ),
            WHOLE,
            PLAN,
        )[0]
        for study in range(studies)
    ]
    assert {row.metric for row in gaps} == {GAP}
    truth = text.truth() - searched.truth()
    yield f"search: {GAP}", Answer.of(gaps, truth, width_by_hand((text, changes), (searched, others)))

    rivals = {name: Plan.parse(f"0-2 3*{number + 2}") for number, name in enumerate(names(studies))}
    plans = map(str, (PLAN, *rivals.values()))
    rows = text.rows(dict(zip(plans, (base, *(base + changes)), strict=True)))
    scores = [row for row in against_arms(rows, PLAN, rivals, (), "report", seed=0) if row.metric == ABOVE_CHOSEN]
    yield f"search: {ABOVE_CHOSEN}", Answer.of(scores, text.truth(), by_hand)


def frontier(text: Text, studies: int, draw: np.random.Generator) -> Iterator[tuple[str, Answer]]:
    base, changes = 2.0 * text.tokens, text.changes(studies, draw)
    rows = text.rows({"b": base, **dict(zip(names(studies), base + changes, strict=True))})
    by_hand = width_by_hand((text, changes))
    setting = Setting("decode", 1, 8)
    points = [LatencyPoint("b", "skip", "b"), *(LatencyPoint(name, PARALLEL, name) for name in names(studies))]
    rounds = [{(point.name, setting): 1.0 + (point.arm == PARALLEL) for point in points}] * 20
    scores = verdict_rows(points, rows, {"b": 2.0}, rounds, [setting])
    above = [row for row in scores if row.metric == ABOVE_RIVAL]
    yield f"frontier: {ABOVE_RIVAL}", Answer.of(above, text.truth(), by_hand)
    compared = [ArmLosses(name, DELTA, {"plan": name}) for name in names(studies)]
    scores = [row for row in differences("frontier", rows, "b", compared, seed=0, by_task=False) if row.against is None]
    yield f"frontier: {DELTA}", Answer.of(scores, text.truth(), by_hand)


def claims(text: Text, studies: int, draw: np.random.Generator) -> Iterator[tuple[str, Answer]]:
    """Two plans a study; the second costs half of what the first does, and on the same documents much of the same."""
    base, changes = 2.0 * text.tokens, text.changes(studies, draw)
    others = 0.25 * changes + text.changes(studies, draw, 0.25)
    keys = names(2 * studies)
    rows = text.rows({"b": base, **dict(zip(keys, base + np.concatenate([changes, others]), strict=True))})
    part = arms(rows, "b", keys)
    assert part is not None
    kinds: Mapping[str, tuple[Statistic, float, Numbers]] = {
        "effect": (first, text.truth(), width_by_hand((text, changes))),
        "difference": (less, text.truth(0.5), width_by_hand((text, changes - others))),
        "quotient": (lambda pair: pair[..., 1] / pair[..., 0], 0.5, quotient_by_hand(text, others, changes)),
    }
    drawn = [Resampled.of([part.of((at, studies + at))], seed=0) for at in range(studies)]
    for name, (statistic, truth, by_hand) in kinds.items():
        yield f"claims: {name}", Answer.of([each.row("claim", name, statistic) for each in drawn], truth, by_hand)


VERBS = {"sweep": sweep, "search": search, "frontier": frontier, "claims": claims}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=8, help="texts of each mix, each with documents of its own")
    parser.add_argument("--studies", type=int, default=250, help="studies on each text")
    parser.add_argument("--verbs", nargs="+", default=list(VERBS), choices=VERBS)
    options = parser.parse_args()
    began, failed = time.perf_counter(), 0
    print(f"{'tasks':>5}  {'interval':24} {'covers':>6}  {'width / by hand':>15}")
    for count, tasks in MIXES.items():
        answers: dict[str, list[Answer]] = {}
        for number in range(options.texts):
            for verb in options.verbs:
                draw = np.random.default_rng((count, number, list(VERBS).index(verb)))
                for name, answer in VERBS[verb](Text.drawn(tasks, draw), options.studies, draw):
                    answers.setdefault(name, []).append(answer)
        for name, each in answers.items():
            covers = np.mean([(own.low <= own.truth) & (own.truth <= own.high) for own in each])
            width = np.mean([np.mean((own.high - own.low) / own.by_hand) for own in each])
            holds = LEAST <= covers <= MOST and width <= WIDEST
            failed += not holds
            print(f"{count:5}  {name:24} {covers:6.3f}  {width:15.3f}{'' if holds else '   outside of the bars'}")
    studies = options.texts * options.studies
    print(
        f"{studies:,} studies of each mix, {time.perf_counter() - began:.0f} s; {failed} intervals outside of the bars"
    )
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
