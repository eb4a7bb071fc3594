"""The eight questions of "Transformer Layers as Painters", answered from the rows of a sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations, pairwise

from layerwise.page.data import ReportData
from layerwise.page.finding import (
    Finding,
    Paper,
    Published,
    Question,
    Verdict,
    describe_text_needed,
    describe_undecided,
    read_contrasts,
    read_estimates,
    select_widest,
)
from layerwise.page.formatting import join_words, label
from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.estimate import Estimate
from layerwise.results.selection import PRESENT
from layerwise.results.vocabulary import CONTRAST, LOG_RATIO

PAPER = Paper("Transformer Layers as Painters", "Sun et al., AAAI 2025, arXiv 2407.09298")

MIN_COSINE, MIN_SAVED, MIN_NATS, ALIKE = 0.02, 0.25, 0.01, 0.05
MIN_FACTOR = 1.25
MIN_ORDER_COST = {"order_by_benchmark": 0.05, "order_by_task": 0.0}
"""Smallest difference in the cost of order that counts, for benchmarks (on their scale) and text (in nats/token)."""

NO_GAIN = (
    "The control, one pass with its update multiplied by 3, was not run; to run it, add --families"
    " painters,looped,gain_sweep."
)
ORDERS = ("reverse", "random")
PAIRS = tuple(f"{harsher}:{milder}" for milder, harsher in combinations(PAINTERS_RANKING, 2))
NEIGHBORS = tuple(f"{harsher}:{milder}" for milder, harsher in pairwise(PAINTERS_RANKING))
MIN_AS_PUBLISHED = 13
MIN_REVERSED = 1 + len(PAIRS) - MIN_AS_PUBLISHED
COSTS_RULE = (
    "Costs are averaged over the paper's layer windows of more than one layer; two costs that differ by less than 5 %"
    " of their mean count as equal."
)
COST_UNIT = "(cost of {} minus cost of {}, divided by their mean)"
"""Unit of a difference between the costs of two strategies."""

SHARED_SPACE = Question(
    "Do the middle layers share one representation space?",
    "The first and the last states are those of the first and the last eighth of the depth. Only pairs of states that"
    " are the same number of layers apart are compared. Sink tokens are excluded. The similarity of tokens of different"
    " documents is subtracted as a baseline. The number is the mean similarity among middle states minus that to the"
    " first or to the last states, whichever is higher.",
    Published(
        PAPER,
        "The hidden states of the middle layers are alike, and unlike those of the first and the last layers.",
        "heat maps of cosines, no number",
        "section 3.1, figure 3",
    ),
    "(cosine similarity of middle states to each other, minus their similarity to the first or last states)",
    MIN_COSINE,
)
ALL_NEEDED = Question(
    "Are all layers needed?",
    "“A few layers” are the paper's layer windows of up to a quarter of the depth; “the whole middle” is its widest"
    " window. The saving is 1 − a / b, where a is the cost per layer of skipping a few layers, and b that of"
    " skipping the whole middle. Skipping the whole middle must also cost more than skipping a few layers; a difference"
    f" within {MIN_NATS:g} nats/token counts as none.",
    Published(
        PAPER,
        "A few middle layers can be skipped at little cost, and the cost rises with each further layer.",
        "a curve, no number",
        "section 3.2, figure 4",
    ),
    "(relative saving in cost per layer when a few layers are skipped instead of the whole middle)",
    MIN_SAVED,
)
SAME_FUNCTION = Question(
    "Do the middle layers all do the same thing?",
    f"{COSTS_RULE} The statement is contradicted if repeating costs {MIN_NATS:g} nats/token or less.",
    Published(
        PAPER,
        "Repeating the center layer in place of the middle layers is worse than skipping them.",
        "curves, no number",
        "section 3.3, figure 5",
    ),
    COST_UNIT.format("repeating", "skipping"),
    ALIKE,
)
ANY_ORDER = Question(
    "Does the order of the middle layers matter?",
    f"{COSTS_RULE} Reverse and random order must each cost something, but less than skipping the layers,"
    " which is the baseline.",
    Published(
        PAPER,
        "Running the middle layers in reverse or random order costs something, but less than skipping them.",
        "curves, no number",
        "section 3.4, figures 6 and 7",
    ),
    COST_UNIT.format("skipping", "reordering"),
    ALIKE,
)
PARALLEL = Question(
    "Can the middle layers run in parallel?",
    f"{COSTS_RULE} Parallel layers must cost more than reversed ones, and less than skipping the layers, which"
    " is the baseline.",
    Published(
        PAPER,
        "Running the middle layers in parallel and averaging their outputs costs less than skipping them, and more than"
        " reversing them.",
        "curves, no number",
        "section 3.5, figure 8",
    ),
    COST_UNIT.format("skipping", "running in parallel"),
    ALIKE,
)
ORDER_BY_TASK = Question(
    "Does order matter more for reasoning tasks?",
    "The cost of order is the mean cost of the strategies reverse, random order and parallel. It must be higher on"
    " reasoning tasks than on others; on benchmarks, by at least 0.05 of the scale from chance (0) to the original"
    " model"
    " (1). The null is that reasoning tasks suffer more from any change. To exclude it, the cost of order is divided by"
    " the cost of skipping the same layers; this ratio must be at least 1.25 times as high on reasoning tasks as on"
    " others.",
    Published(PAPER, "Mathematics and reasoning depend more on the order than other tasks.", "", "section 3.6"),
    "times as costly on reasoning tasks as on others, relative to skipping",
    MIN_FACTOR,
)
LOOPING = Question(
    "Does looping parallel layers help?",
    f"{COSTS_RULE} The control is one pass with its update multiplied by 3, so that it adds the mean update three"
    " times, as three passes do.",
    Published(
        PAPER,
        "Feeding the mean of parallel layers back to them, three passes in all, is better than one pass.",
        "curves for three passes, no number",
        "section 3.7, figure 9",
    ),
    COST_UNIT.format("one pass", "three passes"),
    ALIKE,
)
RANKING = Question(
    "Which strategies hurt least?",
    f"{COSTS_RULE} The two strategies of each of the {len(PAIRS)} pairs are compared with a 99 % interval for their"
    f" difference. The ranking is supported if at least {MIN_AS_PUBLISHED} pairs rank as published,"
    " which a random ranking reaches in 3 of 100 cases. It is"
    f" contradicted if at least {MIN_REVERSED} pairs are reversed.",
    Published(
        PAPER,
        "From least to most harmful: looped parallel, random order, reverse, parallel, skip, middle repeat.",
        "a ranking",
        "section 3.8, figure 11",
    ),
    "(Kendall's τ with the published ranking)",
)


def judge_middle_layers_share_space(data: ReportData) -> Finding | None:
    estimates = read_estimates(data, "same_space", "published", "beginning", "ending")
    if estimates is None:
        return None
    published, *ends = estimates
    raw, at = published.locate(MIN_COSINE), {end.locate(MIN_COSINE) for end in ends}
    if raw in ("within", "below"):
        verdict = Verdict.CONTRADICTED
        answer = "No, middle states are no more similar to each other than to the first or last states."
    elif raw == "above" and not {"within", "below"}.isdisjoint(at):
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = (
            "No more than distance explains: at equal distance, middle states are no more similar to each other than to"
            " the first or last states."
        )
    elif {raw, *at} == {"above"}:
        verdict = Verdict.SUPPORTED
        answer = (
            "Yes, at equal distance, middle states are more similar to each other than to the first or last states."
        )
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(select_widest(estimates), MIN_COSINE)
    return SHARED_SPACE.answer(verdict, answer, min(ends, key=lambda end: end.value))


def judge_all_layers_needed(data: ReportData) -> Finding | None:
    estimates = read_estimates(data, "all_needed", "saved", "rise")
    if estimates is None:
        return _answer_excluded(data, "all_needed", ALL_NEEDED)
    saved, rise = estimates
    of_saved, of_rise = saved.locate(MIN_SAVED), rise.locate(MIN_NATS)
    if of_rise in ("within", "below"):
        verdict, answer = Verdict.CONTRADICTED, "The cost does not rise with the number of skipped layers."
    elif of_saved == "below":
        verdict, answer = (
            Verdict.CONTRADICTED,
            "Yes, skipping a few layers costs more per layer than skipping the whole middle.",
        )
    elif of_saved == of_rise == "above":
        verdict, answer = (
            Verdict.SUPPORTED,
            "No, skipping a few layers costs less per layer than skipping the whole middle.",
        )
    elif of_saved == "within" and of_rise == "above":
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = (
            "Skipping a few layers costs about as much per layer as skipping the whole middle: it costs less only"
            " because fewer layers are skipped."
        )
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(saved, MIN_SAVED)
    return ALL_NEEDED.answer(verdict, answer + _describe_excluded(data, "all_needed"), saved)


def judge_middle_layers_do_the_same(data: ReportData) -> Finding | None:
    estimates = read_estimates(data, "same_function", "middle_repeat:skip", "middle_repeat")
    if estimates is None:
        return _answer_excluded(data, "same_function", SAME_FUNCTION)
    more, harm = estimates
    at, is_harmless = more.locate(ALIKE), harm.locate(MIN_NATS) in ("within", "below")
    if is_harmless:
        verdict = Verdict.CONTRADICTED
        answer = "Yes, repeating the center layer in place of the other middle layers does no harm."
    elif at == "below":
        verdict, answer = Verdict.CONTRADICTED, "In part: repeating the center layer costs less than skipping."
    elif at == "above":
        verdict, answer = Verdict.SUPPORTED, "No, repeating the center layer is worse than skipping the layers."
    elif at == "within" and harm.locate(MIN_NATS) == "above":
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "Repeating does harm, but no more than skipping."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(more, ALIKE)
    return SAME_FUNCTION.answer(verdict, answer + _describe_excluded(data, "same_function"), more)


def judge_order_matters(data: ReportData) -> Finding | None:
    estimates = read_estimates(data, "any_order", *(f"skip:{order}" for order in ORDERS), *ORDERS)
    if estimates is None:
        return _answer_excluded(data, "any_order", ANY_ORDER)
    less, costs = dict(zip(ORDERS, estimates, strict=False)), dict(zip(ORDERS, estimates[2:], strict=True))

    def select(by_order: Mapping[str, Estimate], *positions: str) -> str:
        return join_words([order for order in ORDERS if by_order[order].locate(ALIKE) in positions])

    if free := select(costs, "within", "below"):
        verdict, answer = Verdict.CONTRADICTED, f"No, running the layers in {free} order costs nothing."
    elif worse := select(less, "below"):
        verdict, answer = (
            Verdict.CONTRADICTED,
            f"Yes, more than published: running the layers in {worse} order costs more than skipping them.",
        )
    elif same := select(less, "within"):
        verdict, answer = (
            Verdict.NO_BETTER_THAN_NULL,
            f"Yes, more than published: running the layers in {same} order costs as much as skipping them.",
        )
    elif all(estimate.locate(ALIKE) == "above" for estimate in estimates):
        verdict, answer = Verdict.SUPPORTED, "Somewhat: another order costs something, but less than skipping."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(select_widest(estimates), ALIKE)
    closest = min(less.values(), key=lambda estimate: estimate.value)
    return ANY_ORDER.answer(verdict, answer + _describe_excluded(data, "any_order"), closest)


def judge_layers_run_in_parallel(data: ReportData) -> Finding | None:
    estimates = read_estimates(data, "parallel", "skip:parallel", "parallel:reverse")
    if estimates is None:
        return _answer_excluded(data, "parallel", PARALLEL)
    skipped, reverse = estimates
    at, at_reverse = skipped.locate(ALIKE), reverse.locate(ALIKE)
    if at == "below":
        verdict, answer = Verdict.CONTRADICTED, "No, running the layers in parallel costs more than skipping them."
    elif at == "within":
        verdict, answer = (
            Verdict.NO_BETTER_THAN_NULL,
            "No, running the layers in parallel costs as much as skipping them.",
        )
    elif at_reverse in ("within", "below"):
        verdict = Verdict.CONTRADICTED
        answer = "Yes, better than published: running the layers in parallel costs no more than reversing them."
    elif at == at_reverse == "above":
        verdict = Verdict.SUPPORTED
        answer = "Yes, running the layers in parallel costs less than skipping them, and more than reversing them."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(select_widest(estimates), ALIKE)
    return PARALLEL.answer(verdict, answer + _describe_excluded(data, "parallel"), skipped)


def judge_order_by_task(data: ReportData) -> Finding | None:
    contrasts = data.rows.where(measure=CONTRAST, claim=tuple(MIN_ORDER_COST), against=PRESENT)
    claim = next((name for name in MIN_ORDER_COST if contrasts.where(claim=name)), "")
    rows = {row.metric: row for row in contrasts.where(claim=claim)}
    less, ratio = (Estimate.read_bounded(rows.get(metric)) for metric in ("order_less", LOG_RATIO))
    if less is None:
        answer = (
            "Fewer than two layer windows can be compared. A layer window counts only if skipping it keeps at least a"
            " quarter of the score above chance on every benchmark."
        )
        return ORDER_BY_TASK.answer(Verdict.INCONCLUSIVE, answer) if "windows" in rows else None
    at, factor = less.locate(MIN_ORDER_COST[claim]), math.log(MIN_FACTOR)
    at_ratio = None if ratio is None else ratio.locate(factor)
    if at in ("within", "below"):
        verdict, answer = Verdict.CONTRADICTED, f"No, order does not cost more on {rows['order_less'].task}."
    elif at == "open":
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(less, MIN_ORDER_COST[claim])
    elif ratio is None:
        verdict, answer = (
            Verdict.INCONCLUSIVE,
            "No plan skips the reordered layers, so reasoning tasks may simply suffer more from any change.",
        )
    elif at_ratio == "above":
        verdict, answer = Verdict.SUPPORTED, "Yes, order matters more for reasoning tasks, also relative to skipping."
    elif at_ratio in ("within", "below"):
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "Reasoning tasks suffer more from any change, and from reordering no more than from skipping."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(ratio, factor)
    compared = f" Reasoning tasks: {rows['order_less'].task}; other tasks: {rows['order_less'].against}."
    return ORDER_BY_TASK.answer(verdict, answer + compared, ratio and ratio.exponentiate())


def judge_looping_helps(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "looping")
    if "parallel:looped_parallel" not in rows:
        return _answer_excluded(data, "looping", LOOPING)
    helps = Estimate.read(rows["parallel:looped_parallel"])
    gain = Estimate.read(rows["gain:looped_parallel"]) if "gain:looped_parallel" in rows else None
    at, at_gain = helps.locate(ALIKE), gain and gain.locate(ALIKE)
    if at in ("within", "below"):
        verdict, answer = Verdict.CONTRADICTED, "No, three passes increase the loss at least as much as one."
    elif at == "above" and at_gain in ("within", "below"):
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "No more than multiplying the update of one pass by 3."
    elif at == at_gain == "above":
        verdict, answer = (
            Verdict.SUPPORTED,
            "Yes, three passes increase the loss less than one, and less than one with its update multiplied by 3.",
        )
    elif at == "above" and gain is None:
        verdict = Verdict.SUPPORTED
        answer = f"Yes, three passes increase the loss less than one. {NO_GAIN}"
    else:
        verdict = Verdict.INCONCLUSIVE
        answer = describe_undecided(select_widest(each for each in (helps, gain) if each), ALIKE)
    return LOOPING.answer(verdict, answer + _describe_excluded(data, "looping"), helps)


def judge_strategies_rank_as_published(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "ranking")
    if not {"tau", *PAIRS, *PAINTERS_RANKING} <= set(rows):
        return _answer_excluded(data, "ranking", RANKING)
    pairs = {pair: Estimate.read(rows[pair]) for pair in PAIRS}
    at = {pair: estimate.locate(ALIKE) for pair, estimate in pairs.items()}
    as_published, reverse = (list(at.values()).count(position) for position in ("above", "below"))
    if {at[pair] for pair in NEIGHBORS} == {"within"}:
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "The strategies cost the same, so they cannot be ranked."
    elif as_published >= MIN_AS_PUBLISHED:
        verdict, answer = (
            Verdict.SUPPORTED,
            f"As published: {as_published} of {len(PAIRS)} pairs of strategies rank as in the paper.",
        )
    elif reverse >= MIN_REVERSED:
        verdict, answer = (
            Verdict.CONTRADICTED,
            f"Not as published: {reverse} of {len(PAIRS)} pairs of strategies rank the other way.",
        )
    else:
        verdict = Verdict.INCONCLUSIVE
        widest = select_widest(pairs[pair] for pair in NEIGHBORS)
        answer = describe_undecided(widest, ALIKE)
        if widest.has_interval:
            answer = (
                "Too few pairs of strategies differ clearly to confirm or contradict the published ranking"
                f"{describe_text_needed(widest, ALIKE)}."
            )
    least_first = [label(name) for name in sorted(PAINTERS_RANKING, key=lambda name: rows[name].value)]
    return RANKING.answer(
        verdict,
        f"{answer} Averaged over layer windows, the ranking is, least harmful first: {join_words(least_first)}.",
        Estimate.read(rows["tau"]),
    )


def _count_windows(data: ReportData, claim: str) -> tuple[int, int]:
    rows = read_contrasts(data, claim)
    excluded, compared = (int(rows[name].value) if name in rows else 0 for name in ("excluded", "windows"))
    return excluded, excluded + compared


def _describe_excluded(data: ReportData, claim: str) -> str:
    excluded, windows = _count_windows(data, claim)
    if not excluded:
        return ""
    are = "is" if excluded == 1 else "are"
    return (
        f" Of {windows} layer windows, {excluded} {are} excluded, because some plan does worse than a unigram model"
        " there."
    )


def _answer_excluded(data: ReportData, claim: str, question: Question) -> Finding | None:
    excluded, windows = _count_windows(data, claim)
    answer = (
        f"In {excluded} of {windows} layer windows, some plan does worse than a unigram model, so too few windows are"
        " left"
        " to compare."
    )
    return question.answer(Verdict.INCONCLUSIVE, answer) if excluded else None


PAINTERS_FINDINGS = (
    judge_middle_layers_share_space,
    judge_all_layers_needed,
    judge_middle_layers_do_the_same,
    judge_order_matters,
    judge_layers_run_in_parallel,
    judge_order_by_task,
    judge_looping_helps,
    judge_strategies_rank_as_published,
)
