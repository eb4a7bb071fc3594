"""Findings of `layerwise train growth`: does a schedule beat uniform training, and because of its layers?

Phases also change the learning rate and the cost of steps. Only a schedule that beats its controls, which exchange the
roles of layers, therefore shows that it matters which layers train when.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from layerwise.page.data import ReportData
from layerwise.page.derived import growth
from layerwise.page.finding import (
    Effect,
    Finding,
    Paper,
    Published,
    Question,
    Verdict,
    effect_to_verdict,
    find_unfinished,
    judge_effect,
)
from layerwise.page.formatting import (
    NUMBER,
    SIGNED,
    format_adjusted_p,
    format_count,
    format_number,
    join_words,
    to_sentence,
)
from layerwise.results.estimate import Estimate
from layerwise.results.rows import Score
from layerwise.results.vocabulary import DIFFERENCE, LOSS_RATIO, TOKENS, WARMUP

LOSS = Question(
    "Is the loss of growth training 4.7 times lower?",
    "The statement is supported if the interval over seeds reaches 4.7 and lies entirely above 2.17, the square root of"
    " 4.7. It is contradicted if the interval lies entirely below 4.7. It is inconclusive if uniform training does not"
    " beat the bigram baseline, or if the loss is not low enough but was still falling.",
    Published(
        Paper("Anatomical Heterogeneity in Transformer Language Models", "arXiv 2603.19348, 2026"),
        "Growth training costs 54 % less. After the same number of steps, its validation loss is 0.127 instead of"
        " 0.599.",
        "4.7 times",
        "results",
    ),
    "times lower after the same number of tokens",
    4.7,
)
EFFECTS: Mapping[Effect, str] = {
    "better": "the {variant} schedule is better than uniform training, with a loss difference of {number}",
    "worse": "the {variant} schedule is worse than uniform training, with a loss difference of {number}",
    "open": "the loss difference between the {variant} schedule and uniform training is inconclusive: {number}",
    "bare": "the loss difference between the {variant} schedule and uniform training is {number}, without an interval",
}
BASELINES: Mapping[Verdict, str] = {
    Verdict.SUPPORTED: "Yes: uniform training ends at {} nats/token, below the bigram baseline at {}.",
    Verdict.INCONCLUSIVE: "Uniform training ends at {} nats/token, and its seeds vary around the bigram baseline at {}."
    " A gain over it may come only from freezing layers.",
    Verdict.CONTRADICTED: "No: uniform training ends at {} nats/token, above the bigram baseline at {}. A schedule may"
    " win only because it freezes layers.",
}


def judge_loss(data: ReportData) -> Finding | None:
    """Judge the claim of 4.7 times lower loss after the same number of tokens."""
    variant = growth.find_headline_variant(data)
    ratio = None if variant is None else growth.against(data, growth.Training(variant), terms=TOKENS, metric=LOSS_RATIO)
    if variant is None or ratio is None:
        return None
    estimate, published = Estimate.read_bounded(ratio), LOSS.margin or 0.0
    verdict, answer = Verdict.INCONCLUSIVE, "The interval contains both 4.7 and much smaller values: train more seeds."
    if estimate is None:
        answer = "A single seed has no interval: train several seeds."
    elif judge_baseline(data) != Verdict.SUPPORTED:
        answer = "Uniform training is not shown to beat the bigram baseline."
    elif estimate.is_below(published) and find_unfinished(data, variant):
        answer = f"The validation loss of {variant} was still falling: train for more steps."
    elif estimate.is_below(published):
        verdict, answer = Verdict.CONTRADICTED, "No: the whole interval is below 4.7."
    elif estimate.is_above(math.sqrt(published)):
        verdict, answer = (
            Verdict.SUPPORTED,
            "Yes: the interval reaches 4.7 and lies entirely above the square root of 4.7.",
        )
    return LOSS.answer(verdict, answer, estimate)


GROWTH_FINDINGS = (judge_loss,)


def list_growth_findings(data: ReportData) -> Iterator[Finding]:
    for finding in (make_verdict, _has_learned):
        if (each := finding(data)) is not None:
            yield each


def make_verdict(data: ReportData) -> Finding | None:
    """Judge whether the main schedule beats uniform training, and say whether its choice of layers is the reason."""
    variant = growth.planned(data)
    compared = (
        None if variant is None else _compare_at_equal_cost(data, variant) or _compare_at_equal_steps(data, variant)
    )
    if variant is None or compared is None:
        return None
    answer, effect, score = compared
    count = format_count(
        min(len(growth.seeds(data, each)) for each in (growth.Training(variant), growth.UNIFORM)), "seed"
    )
    return Finding(
        "Does training in phases beat uniform training?",
        f"{to_sentence(f'{answer} over {count}')} {_describe_roles(data, variant, effect)}",
        effect_to_verdict(effect),
        Estimate.read(score),
        "nats/token" if score.metric == DIFFERENCE else "times",
    )


def _compare_at_equal_cost(data: ReportData, variant: str) -> tuple[str, Effect, Score] | None:
    """Return the comparison with uniform training as text, its effect, and its row."""
    rows = {terms: growth.against(data, growth.Training(variant), terms=terms) for terms in growth.COMPARED_COSTS}
    terms, score = next(((terms, row) for terms, row in rows.items() if row is not None), (None, None))
    if terms is None or score is None:
        return None
    effect = judge_effect(score, data.level)
    number = f"{SIGNED.text(score)} nats/token{_describe_limit(score, data.level) if effect == 'open' else ''}"
    return f"{growth.COMPARED_COSTS[terms]}, {EFFECTS[effect].format(variant=variant, number=number)}", effect, score


def _compare_at_equal_steps(data: ReportData, variant: str) -> tuple[str, Effect, Score] | None:
    ratio = growth.against(data, growth.Training(variant), terms=TOKENS, metric=LOSS_RATIO)
    if ratio is None:
        return None
    effect: Effect = "open"
    if ratio.low is None or ratio.high is None:
        effect = "bare"
    elif ratio.low > 1.0:
        effect = "better"
    elif ratio.high < 1.0:
        effect = "worse"
    times = NUMBER.text(ratio)
    return (
        f"after the same number of steps, the loss of uniform training is {times} times that of {variant}",
        effect,
        ratio,
    )


def _describe_limit(score: Score, level: float) -> str:
    """Describe why a difference is inconclusive: the minimum detectable effect, or the p-value after correction.

    >>> _describe_limit(Score("growth", "difference", 0.1, p=0.03, p_adjusted=0.2), 0.05)
    ' (adjusted p 0.20)'
    """
    if score.p is not None and score.p < level:
        return f" (adjusted p {format_adjusted_p(score)})"
    return "" if score.mde is None else f" (minimum detectable effect {format_number(score.mde)})"


def _describe_roles(data: ReportData, variant: str, effect: Effect) -> str:
    rows = {control: growth.against(data, growth.Training(variant), control) for control in growth.CONTROLS}
    fates = {control: judge_effect(score, data.level) for control, score in rows.items() if score is not None}
    if not fates:
        return "No control was trained, so it is untested whether it matters which layers train when."
    if "worse" in fates.values():
        better = _name_controls(fates, "worse")
        return f"It is better with {better}, so its assignment of layers to phases is not the best."
    if set(fates.values()) == {"better"}:
        least = "" if "permuted" in fates else ", although no permuted control was trained"
        uniform = "" if effect == "better" else ", although it does not beat uniform training"
        others = _name_controls(fates, "better")
        return f"It is worse with {others}, so it matters which layers train when{least}{uniform}."
    conclusion = "the gain is not shown to depend on" if effect == "better" else "nothing shows that it matters"
    others = _name_controls(fates, "open", "bare")
    return f"It is not distinguishably worse with {others}, so {conclusion} which layers train when."


def _name_controls(fates: Mapping[str, Effect], *selected: Effect) -> str:
    return join_words([growth.CONTROLS[control] for control, fate in fates.items() if fate in selected])


def judge_baseline(data: ReportData) -> Verdict | None:
    """Judge whether the loss of uniform training is below the bigram baseline. Returns None if a loss is missing."""
    own, null = growth.held_out(data, growth.UNIFORM), growth.find_bigram_loss(data)
    if own is None or null is None:
        return None
    low, high = (own.value if bound is None else bound for bound in (own.low, own.high))
    if high < null.value:
        return Verdict.SUPPORTED
    return Verdict.CONTRADICTED if low > null.value else Verdict.INCONCLUSIVE


def _has_learned(data: ReportData) -> Finding | None:
    state = judge_baseline(data)
    if state is None:
        return None
    uniform, pairs = NUMBER.text(growth.held_out(data, growth.UNIFORM)), NUMBER.text(growth.find_bigram_loss(data))
    return Finding("Does uniform training beat the bigram baseline?", BASELINES[state].format(uniform, pairs), state)


def describe_tuning(data: ReportData) -> str:
    """Describe how learning rates and warmups were tuned, and which best values are at an end of the range tried."""
    tunings = {"learning rate": growth.tunings(data), "warm-up": growth.tunings(data, WARMUP)}
    if not any(tunings.values()):
        return "The learning rate was not tuned, so the result may differ at another learning rate."
    at_end = [f"the {name} of {each.variant}" for name, own in tunings.items() for each in own if each.at_end]
    if not at_end:
        return "The learning rate was tuned."
    what = "its best value is" if len(at_end) == 1 else "their best values are"
    return (
        f"The learning rate was tuned. Try more values of {join_words(at_end)}, because {what} at an end of the range"
        " that was tried."
    )
