"""The published headline of growth training, looked up: what is saved, for which arm, and beside which nulls.

The headline is of the published schedule; where a run has none, the schedule that its study is about answers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from layerwise.report.growth.findings import planned
from layerwise.report.growth.learning_rates import WARMUP, tunings
from layerwise.report.growth.lookup import GROWTH, HELD_OUT, TERMS, TEST, UNIFORM, GrowthScores
from layerwise.report.page.number_format import between, fixed, tidy
from layerwise.report.page.table import Table
from layerwise.report.page.wording import counted, listed
from layerwise.results.rows import Score

PUBLISHED = "published"
SAVING, AT_MOST, AT_LEAST = "saving", "saving_at_most", "saving_at_least"
LOSS_RATIO, TIME_SAVED, READ_OFF, BUDGET = "loss_ratio", "time_saved", "read_off", "budget"


@dataclass(frozen=True, slots=True)
class Bounds:
    """A number and where it may lie; an end that nothing bounds is infinite."""

    value: float
    low: float
    high: float


def headline_arm(run: GrowthScores) -> str | None:
    """The arm that the published headline is put to."""
    return PUBLISHED if PUBLISHED in run.arms else planned(run)


def row(run: GrowthScores, arm: str, terms: str, metric: str) -> Score | None:
    """A row of an arm against uniform."""
    return run.score(GROWTH, metric, f"{arm} - {UNIFORM}", terms)


def saved(run: GrowthScores, arm: str, terms: str) -> Bounds | None:
    """What the arm saves to reach uniform's loss; of a loss that was not reached, or too soon, the one bound there is.

    `None` where it was not measured, or has no interval.
    """
    exact, most, least = (row(run, arm, terms, metric) for metric in (SAVING, AT_MOST, AT_LEAST))
    if exact is not None and exact.low is not None and exact.high is not None:
        return Bounds(exact.value, exact.low, exact.high)
    if most is not None:
        return Bounds(most.value, -math.inf, most.value)
    return None if least is None else Bounds(least.value, least.value, 1.0)


def saved_in_words(run: GrowthScores, arm: str, terms: str) -> str:
    """The saving as it is printed, in hundredths; where seeds are censored, how many and what that leaves."""
    exact, most, least = (row(run, arm, terms, metric) for metric in (SAVING, AT_MOST, AT_LEAST))
    if exact is not None:
        return f"{percents(exact)} %"
    if most is not None:
        seeds = row(run, arm, terms, "never")
        count = "a seed" if seeds is None else counted(int(seeds.value), "seed")
        return f"{hundredths(most.value)} % at most (not reached with {count})"
    if least is not None:
        seeds = row(run, arm, terms, "sooner")
        count = "a seed" if seeds is None else counted(int(seeds.value), "seed")
        return f"{hundredths(least.value)} % at least (reached before the first look with {count})"
    return "–"


def how_read(run: GrowthScores, arm: str) -> str:
    """What the cost of a loss was read off, as the end of a sentence."""
    scores = [score for terms in TERMS if (score := row(run, arm, terms, READ_OFF)) is not None]
    lengths = max((int(score.value) for score in scores), default=0)
    if lengths > 1:
        return f"read off its trainings of {lengths} lengths, each decayed to its end"
    return "read off the course of its loss, whose rate has not come down yet"


def nulls_in_words(run: GrowthScores) -> str:
    """The table of token pairs, and uniform with its warm-up, as a sentence; empty where neither was measured."""
    uniform = run.of_arm(HELD_OUT, "nll", UNIFORM, TEST)
    parts = []
    if uniform is not None:
        parts.append(f"uniform{_warmup(run)} ends at {tidy(uniform.value)} nats per token")
    if run.null is not None:
        parts.append(f"a table of token pairs at {tidy(run.null.value)}")
    return f"{listed(parts)[:1].upper()}{listed(parts)[1:]}." if parts else ""


def _warmup(run: GrowthScores) -> str:
    tried = next((tuning for tuning in tunings(run, WARMUP) if tuning.arm == UNIFORM), None)
    if tried is None or tried.chosen is None:
        return " (its warm-up not tuned)"
    shares = listed([f"{share:g}" for share in tried.losses])
    end = ", the end of them" if tried.at_end else ""
    return f" (its warm-up {tried.chosen:g} of the steps, of {shares} tried{end})"


def headline_rows(run: GrowthScores) -> Table:
    """A row an arm: what it saves of each cost to reach uniform's loss, the time of as many steps, the loss ratio."""
    body = []
    for arm in (*run.arms, *(name for name in run.lengths if name not in run.uniform_lengths)):
        time, ratio = row(run, arm, "tokens", TIME_SAVED), row(run, arm, "tokens", LOSS_RATIO)
        whole = row(run, arm, BUDGET, LOSS_RATIO)
        cells = (
            *(saved_in_words(run, arm, terms) for terms in TERMS),
            "–" if time is None else f"{percents(time)} %",
            *("–" if score is None else between(score.value, score.low, score.high) for score in (ratio, whole)),
        )
        body += [(arm, *cells)] if set(cells) != {"–"} else []
    costs = {"flops": "FLOPs saved", "tokens": "tokens saved", "seconds": "seconds saved"}
    head = ("arm", *(costs[terms] for terms in TERMS), "time saved, same steps", "loss ratio, same tokens",
            "loss ratio, whole budget")  # fmt: skip
    return Table(head, tuple(body))


def epoch_rows(run: GrowthScores) -> Table:
    """A row an arm: how often it read the text while its layers learned, the least and the most of them."""
    body = []
    for arm in (*run.arms, *run.lengths):
        epochs = run.epochs(arm)
        if epochs:
            ends = {kind: [layer for layer, own in epochs.items() if own == of(epochs.values())]
                    for kind, of in (("least", min), ("most", max))}  # fmt: skip
            body.append((arm, *_extremes(epochs, ends["most"]), *_extremes(epochs, ends["least"])))
    return Table(("arm", "most epochs", "layers", "least epochs", "layers"), tuple(body))


def _extremes(epochs: dict[int, float], layers: list[int]) -> Iterator[str]:
    yield fixed(epochs[layers[0]], 2)
    yield "all" if len(layers) == len(epochs) else ", ".join(map(str, layers))


def percents(score: Score) -> str:
    """A share in hundredths with its interval."""
    low, high = (None if bound is None else 100 * bound for bound in (score.low, score.high))
    return between(100 * score.value, low, high)


def hundredths(value: float) -> str:
    """A share in hundredths."""
    return tidy(round(100 * value, 1))
