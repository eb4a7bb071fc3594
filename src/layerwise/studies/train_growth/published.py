"""The questions of "Anatomical Heterogeneity in Transformer Language Models" about growth training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from layerwise.page.data import ReportData
from layerwise.page.derived import growth
from layerwise.page.derived.growth import Training
from layerwise.page.evidence import find_unfinished
from layerwise.page.finding import Finding, Paper, Published, Verdict
from layerwise.page.show import NUMBER
from layerwise.results.estimate import Estimate
from layerwise.results.vocabulary import BUDGET, FLOPS, LOSS_RATIO, TIME_SAVED, TOKENS

PAPER = Paper("Anatomical Heterogeneity in Transformer Language Models", "arXiv 2603.19348, 2026")

COST_SAVED, LOSS_RATIO_PUBLISHED, TIME_SAVED_PUBLISHED = 0.54, 4.7, 0.13
"""The published numbers: a share of the cost, a ratio of losses, and a share of the time."""

RULE = (
    "Supported: the interval over seeds reaches {number} and lies above {least}. Contradicted: all of it lies below "
    "{number}. What has not learned decides nothing: uniform training must end below a table of token pairs, and a "
    "training whose validation loss was still falling contradicts nothing."
)


@dataclass(frozen=True, slots=True)
class _Measured:
    sentence: str
    estimate: Estimate | None


def judge_cost(data: ReportData) -> Finding | None:
    """Judge what share of the operations of uniform training the schedule saves to reach its loss."""
    return _judge(
        data,
        _measure_saving,
        "Does growth training cost 54 % less?",
        "of uniform's operations saved",
        (COST_SAVED, COST_SAVED / 2),
        ("54 %", "half of that"),
        "Budgets by the importance of layers cut the cost of training by about 54 %.",
        "headline",
    )


def judge_loss(data: ReportData) -> Finding | None:
    """Judge how many times lower the loss is after as many tokens."""
    return _judge(
        data,
        _measure_loss_ratio,
        "Is the loss of growth training 4.7 times lower?",
        "times lower",
        (LOSS_RATIO_PUBLISHED, math.sqrt(LOSS_RATIO_PUBLISHED)),
        ("4.7 times", "its square root"),
        "Validation loss is 0.127 in place of 0.599 after as many steps, and 2.1 times lower with 416 of 656 steps.",
        "results",
    )


def judge_time(data: ReportData) -> Finding | None:
    """Judge what share of the time of uniform training as many steps of the schedule save."""
    return _judge(
        data,
        _measure_time,
        "Is growth training 13 % faster?",
        "of uniform's time saved",
        (TIME_SAVED_PUBLISHED, TIME_SAVED_PUBLISHED / 2),
        ("13 %", "half of that"),
        "Training with the schedule takes 13 % less time than uniform training.",
        "results",
    )


GROWTH_FINDINGS = (judge_cost, judge_loss, judge_time)


def _judge(
    data: ReportData,
    measure: Callable[[ReportData, str], _Measured | None],
    question: str,
    unit: str,
    bounds: tuple[float, float],
    names: tuple[str, str],
    statement: str,
    section: str,
) -> Finding | None:
    arm = growth.headline_arm(data)
    measured = None if arm is None else measure(data, arm)
    if arm is None or measured is None:
        return None
    number, least = names
    verdict, reason = _decide(data, arm, measured.estimate, bounds, names)
    return Finding(
        question,
        f"{reason} {measured.sentence}",
        verdict,
        measured.estimate,
        unit,
        bounds[0],
        RULE.format(number=number, least=least),
        Published(PAPER, statement, number, section),
    )


def _decide(
    data: ReportData, arm: str, estimate: Estimate | None, bounds: tuple[float, float], names: tuple[str, str]
) -> tuple[Verdict, str]:
    (figure, least), (number, least_name) = bounds, names
    if estimate is None:
        return Verdict.INCONCLUSIVE, "One seed has no interval: train with several."
    advantage = measure_advantage(data)
    if advantage is None or not advantage.is_above():
        return Verdict.INCONCLUSIVE, "Uniform training is not shown to beat a table of token pairs."
    if estimate.is_below(figure):
        if find_unfinished(data, arm):
            return Verdict.INCONCLUSIVE, f"The validation loss of {arm} was still falling: train for more steps."
        return Verdict.CONTRADICTED, f"No: the whole interval lies below {number}."
    if estimate.is_above(least):
        return Verdict.SUPPORTED, f"Yes: it reaches {number}, and lies above {least_name}."
    return Verdict.INCONCLUSIVE, f"The interval holds {number} and much less: more seeds or lengths would decide."


def measure_advantage(data: ReportData) -> Estimate | None:
    """Return how far uniform training ends below the bigram baseline (nats/token), or None if that is not known."""
    own, null = Estimate.read_bounded(growth.held_out(data, growth.UNIFORM)), growth.token_pairs(data)
    return None if own is None or null is None else own.minus(null.value).scale(-1.0)


def _measure_saving(data: ReportData, arm: str) -> _Measured | None:
    rows = growth.compared_rows(data, Training(arm))
    texts = {terms: growth.saving_text(rows.where(unit=terms)) for terms in growth.TERMS}
    if texts["flops"] == "–":
        return None
    sentence = (
        f"To reach uniform's loss {arm} saves {texts['flops']} of its operations and {texts['seconds']} of its "
        f"seconds, {growth.how_read(data, arm)}."
    )
    return _Measured(sentence, growth.saved(data, arm, FLOPS))


def _measure_loss_ratio(data: ReportData, arm: str) -> _Measured | None:
    ratio = growth.against(data, Training(arm), terms=TOKENS, metric=LOSS_RATIO)
    if ratio is None:
        return None
    shorter = ""
    for training in growth.lengths(data):
        score = growth.against(data, training, terms=BUDGET, metric=LOSS_RATIO)
        if training.arm == arm and training.share is not None and score is not None:
            share = growth.hundredths(training.share)
            shorter += f"; with {share} % of the steps, {NUMBER.text(score)} times relative to uniform's whole budget"
    sentence = f"After as many tokens uniform's loss is {NUMBER.text(ratio)} times that of {arm}{shorter}."
    return _Measured(sentence, Estimate.read_bounded(ratio))


def _measure_time(data: ReportData, arm: str) -> _Measured | None:
    saved = growth.against(data, Training(arm), terms=TOKENS, metric=TIME_SAVED)
    if saved is None:
        return None
    sentence = f"As many steps of {arm} take {growth.percents(saved)} % less time than uniform's."
    return _Measured(sentence, Estimate.read_bounded(saved))
