"""The questions of "Anatomical Heterogeneity in Transformer Language Models" about growth training."""

from __future__ import annotations

import math

from layerwise.page.data import ReportData
from layerwise.page.derived import growth
from layerwise.page.derived.growth import Training
from layerwise.page.evidence import find_unfinished
from layerwise.page.finding import Finding, Paper, Published, Question, Verdict
from layerwise.page.show import ABSENT, NUMBER
from layerwise.results.estimate import Estimate
from layerwise.results.vocabulary import BUDGET, FLOPS, LOSS_RATIO, TIME_SAVED, TOKENS
from layerwise.studies.train_growth.findings import baseline

PAPER = Paper("Anatomical Heterogeneity in Transformer Language Models", "arXiv 2603.19348, 2026")

RULE = (
    "Supported: the interval over seeds reaches {number} and lies above {least}. Contradicted: all of it lies below "
    "{number}. What has not learned decides nothing: uniform training must end below a table of token pairs, and a "
    "training whose validation loss was still falling contradicts nothing."
)


def _question(text: str, unit: str, figure: float, number: str, least: str, statement: str, section: str) -> Question:
    rule = RULE.format(number=number, least=least)
    return Question(text, rule, Published(PAPER, statement, number, section), unit, figure)


COST = _question(
    "Does growth training cost 54 % less?",
    "of uniform's operations saved",
    0.54,
    "54 %",
    "half of that",
    "Budgets by the importance of layers cut the cost of training by about 54 %.",
    "headline",
)
LOSS = _question(
    "Is the loss of growth training 4.7 times lower?",
    "times lower",
    4.7,
    "4.7 times",
    "its square root",
    "Validation loss is 0.127 in place of 0.599 after as many steps, and 2.1 times lower with 416 of 656 steps.",
    "results",
)
TIME = _question(
    "Is growth training 13 % faster?",
    "of uniform's time saved",
    0.13,
    "13 %",
    "half of that",
    "Training with the schedule takes 13 % less time than uniform training.",
    "results",
)


def judge_cost(data: ReportData) -> Finding | None:
    """Judge what share of the operations of uniform training the schedule saves to reach its loss."""
    arm = growth.headline_arm(data)
    if arm is None:
        return None
    rows = growth.compared_rows(data, Training(arm))
    flops, seconds = (growth.saving_text(rows.where(unit=terms)) for terms in growth.TERMS)
    if flops == ABSENT:
        return None
    sentence = (
        f"To reach uniform's loss {arm} saves {flops} of its operations and {seconds} of its seconds, "
        f"{growth.how_read(data, arm)}."
    )
    return _judge(data, arm, COST, 0.54 / 2, "half of that", growth.saved(data, arm, FLOPS), sentence)


def judge_loss(data: ReportData) -> Finding | None:
    """Judge how many times lower the loss is after as many tokens."""
    arm = growth.headline_arm(data)
    ratio = None if arm is None else growth.against(data, Training(arm), terms=TOKENS, metric=LOSS_RATIO)
    if arm is None or ratio is None:
        return None
    shorter = ""
    for training in growth.lengths(data):
        score = growth.against(data, training, terms=BUDGET, metric=LOSS_RATIO)
        if training.arm == arm and training.share is not None and score is not None:
            share = growth.hundredths(training.share)
            shorter += f"; with {share} % of the steps, {NUMBER.text(score)} times relative to uniform's whole budget"
    sentence = f"After as many tokens uniform's loss is {NUMBER.text(ratio)} times that of {arm}{shorter}."
    return _judge(data, arm, LOSS, math.sqrt(4.7), "its square root", Estimate.read_bounded(ratio), sentence)


def judge_time(data: ReportData) -> Finding | None:
    """Judge what share of the time of uniform training as many steps of the schedule save."""
    arm = growth.headline_arm(data)
    saved = None if arm is None else growth.against(data, Training(arm), terms=TOKENS, metric=TIME_SAVED)
    if arm is None or saved is None:
        return None
    sentence = f"As many steps of {arm} take {growth.percents(saved)} % less time than uniform's."
    return _judge(data, arm, TIME, 0.13 / 2, "half of that", Estimate.read_bounded(saved), sentence)


GROWTH_FINDINGS = (judge_cost, judge_loss, judge_time)


def _judge(
    data: ReportData,
    arm: str,
    question: Question,
    least: float,
    least_name: str,
    estimate: Estimate | None,
    sentence: str,
) -> Finding:
    number = question.published.number
    verdict = Verdict.INCONCLUSIVE
    reason = f"The interval holds {number} and much less: more seeds or lengths would decide."
    if estimate is None:
        reason = "One seed has no interval: train with several."
    elif baseline(data) != Verdict.SUPPORTED:
        reason = "Uniform training is not shown to beat a table of token pairs."
    elif estimate.is_below(question.margin or 0.0) and find_unfinished(data, arm):
        reason = f"The validation loss of {arm} was still falling: train for more steps."
    elif estimate.is_below(question.margin or 0.0):
        verdict, reason = Verdict.CONTRADICTED, f"No: the whole interval lies below {number}."
    elif estimate.is_above(least):
        verdict, reason = Verdict.SUPPORTED, f"Yes: it reaches {number}, and lies above {least_name}."
    return question.answer(verdict, f"{reason} {sentence}", estimate)
