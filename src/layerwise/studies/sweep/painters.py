"""The questions of "Transformer Layers as Painters" that a sweep on text answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise, product
from statistics import NormalDist

from layerwise.page.data import ReportData
from layerwise.page.derived.zones import MARGIN as MIN_BORDER
from layerwise.page.derived.zones import trained_zones
from layerwise.page.evidence import (
    describe_text_needed,
    describe_undecided,
    read_contrasts,
    read_estimates,
    select_widest,
)
from layerwise.page.finding import Finding, Published, Question, Verdict, format_estimate
from layerwise.page.papers import PAINTERS
from layerwise.page.text.wording import counted, label, listed
from layerwise.plan.painters import PAINTERS_RANKING
from layerwise.results.estimate import Estimate
from layerwise.results.selection import PRESENT
from layerwise.results.vocabulary import CONTRAST, EXCESS, LESS, LOG_RATIO, LOOP_COUNT, RELATIVE, SLOPE

MIN_COSINE, CLEARER_COSINE, MIN_SAVED, MIN_NATS, ALIKE, ABRUPT, MIN_LOOPS = 0.02, 0.05, 0.25, 0.01, 0.05, 0.25, 0.1
LOG_FACTOR = math.log(1.25)
"""Two costs within a factor of 1.25 are alike."""

ORDERS, MILDEST, PUBLISHED_ZONES = ("reverse", "random"), ("random", "looped_parallel"), 3
PAIRS = tuple(f"{harsher}:{milder}" for milder, harsher in combinations(PAINTERS_RANKING, 2))
NEIGHBOURS = tuple(f"{harsher}:{milder}" for milder, harsher in pairwise(PAINTERS_RANKING))
MIN_AS_PUBLISHED = 13
MIN_REVERSED = 1 + len(PAIRS) - MIN_AS_PUBLISHED
MILD_PAIRS = tuple(product(MILDEST, (name for name in PAINTERS_RANKING if name not in MILDEST)))
COSTS_RULE = (
    "Costs are averaged over the published windows of more than one layer; less than 5 % of the mean of two costs is"
    " no difference."
)

SHARED_SPACE = Question(
    "Do the middle layers share one representation space?",
    "The ends are an eighth of the depth each. At equal distance between two states, without sink tokens and less what"
    " tokens of other documents share, the middle must be more alike than it is with either end.",
    Published(
        PAINTERS,
        "The hidden states of the middle layers are alike, and unlike those of the first and the last layers.",
        "maps of cosines",
        "section 3.1, figure 3",
    ),
    "of cosine above the nearer end",
    MIN_COSINE,
)
THREE_ZONES = Question(
    "Does the depth have three zones?",
    "A zone is added if random walks with the measured steps separate as much in less than 1 of 100 cases and its"
    f" border is worth {MIN_BORDER:g} of cosine. One zone is no better than the null if the best three are clearer"
    f" than those of walks by less than {CLEARER_COSINE:g}.",
    Published(
        PAINTERS,
        "The lower, the middle and the topmost layers have three kinds of states, and one layer is in the last zone.",
        "three zones, one ending layer",
        "section 3.1, figure 3; appendix A.3, figure 14",
    ),
    "of cosine at the least border",
    MIN_BORDER,
)
ALL_NEEDED = Question(
    "Are all layers needed?",
    "A few layers are the published windows of up to a quarter of the depth, and the whole middle is the widest"
    f" window. A rise of {MIN_NATS:g} nats/token or less is none.",
    Published(
        PAINTERS,
        "A few middle layers can be skipped at little cost, and it costs more and more to skip others.",
        "a curve",
        "section 3.2, figure 4",
    ),
    "of a layer's share saved",
    MIN_SAVED,
)
SAME_FUNCTION = Question(
    "Do the middle layers all do the same?",
    f"{COSTS_RULE} Repeating is harmless if it costs {MIN_NATS:g} nats/token or less.",
    Published(
        PAINTERS,
        "Repeating the center layer in place of the middle layers is worse than skipping them.",
        "curves",
        "section 3.3, figure 5",
    ),
    "of the mean of both costs",
    ALIKE,
)
ANY_ORDER = Question(
    "Does the order of the middle layers matter?",
    f"{COSTS_RULE} Reverse and random order must each cost something, and less than skipping, which is the null.",
    Published(
        PAINTERS,
        "Running the middle layers in reverse or random order costs something, but less than skipping them.",
        "curves",
        "section 3.4, figures 6 and 7",
    ),
    "of the mean of both costs",
    ALIKE,
)
GRACEFUL = Question(
    "Do other orders degrade gracefully?",
    "A step of two layers, or of a tenth of the depth, is abrupt if it takes a quarter of the whole loss more than the"
    " best parabola does there. Statements about one step are corrected over all steps and both orders (Bonferroni).",
    Published(
        PAINTERS,
        "In reverse or random order, quality degrades gracefully as more layers are affected.",
        "curves",
        "section 3.4, figures 6 and 7",
    ),
    "of the whole loss beyond the parabola in the steepest step",
    ABRUPT,
)
PARALLEL = Question(
    "Can the middle layers run in parallel?",
    f"{COSTS_RULE} Parallel layers must cost less than skipped ones, which is the null, and more than reversed ones.",
    Published(
        PAINTERS,
        "Averaging the middle layers side by side costs less than skipping them, and more than reversing them.",
        "curves",
        "section 3.5, figure 8",
    ),
    "of the mean of both costs",
    ALIKE,
)
ORDER_BY_TASK = Question(
    "Does order matter more for reasoning than for text?",
    "Reverse, random and parallel order count in equal parts. The null is that reasoning is fragile: relative to"
    " skipping the same layers, order costs it less than 1.25 times as much as text.",
    Published(PAINTERS, "Another order costs more on mathematics and reasoning than on text.", "", "section 3.6"),
    "nats/token more on reasoning",
)
LOOPING = Question(
    "Does looping parallel layers help?",
    f"{COSTS_RULE} The null is one pass with a gain of 3, which applies as much of the layers' updates.",
    Published(
        PAINTERS,
        "Feeding the mean of parallel layers back to them, three passes in all, is better than one pass.",
        "curves with 3 loops",
        "section 3.7, figure 9",
    ),
    "of the mean of both costs",
    ALIKE,
)
MORE_LOOPS = Question(
    "Do more parallel layers take more loops?",
    "The slope is that of the best loop count over the windows. The null is the best gain in one pass; counts and"
    " gains are chosen on one half of the documents and compared on the other.",
    Published(
        PAINTERS,
        "The best number of loops is roughly proportional to the number of parallel layers.",
        "roughly proportional",
        "section 3.7, figure 10",
    ),
    "loops per layer",
    MIN_LOOPS,
)
RANKING = Question(
    "Do the strategies rank as published?",
    f"{COSTS_RULE} Each of 15 pairs has an interval at 99 %; as published means {MIN_AS_PUBLISHED} pairs or more, which"
    f" a ranking by chance reaches in 3 of 100 cases, and contradicted means {MIN_REVERSED} reversed pairs or more.",
    Published(
        PAINTERS,
        "From least to most harmful: looped parallel, random order, reverse, parallel, skip, middle repeat.",
        "a ranking",
        "section 3.8, figure 11",
    ),
    "(Kendall's τ)",
)
SHALLOWEST_RULE = (
    "The slope is that of the line through the original model and all published windows of more than one layer. Both"
    " strategies must be shallower than each of the other four; less than 5 % of the mean of two slopes is no"
    " difference, and intervals are corrected over the eight pairs."
)
SHALLOWEST_STATEMENT = Published(
    PAINTERS,
    "Looped parallel and random order degrade the least steeply as more layers are affected.",
    "curves",
    "section 3.8, figure 11",
)
SHALLOWEST = Question(
    "Do random order and looped parallel degrade least steeply (loss)?",
    SHALLOWEST_RULE,
    SHALLOWEST_STATEMENT,
    "of the mean of two slopes, at the closest pair",
    ALIKE,
)


def judge_middle_layers_share_space(data: ReportData) -> Finding | None:
    estimates = read_estimates(data, "same_space", "published", "beginning", "ending")
    if estimates is None:
        return None
    published, *ends = estimates
    at = [end.locate(MIN_COSINE) for end in ends]
    if published.locate(MIN_COSINE) in ("within", "below"):
        verdict = Verdict.CONTRADICTED
        answer = "No: states of the middle are no more alike than they are with those of the ends."
    elif published.locate(MIN_COSINE) == "above" and not {"within", "below"}.isdisjoint(at):
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "No more than distance explains: at equal distance the middle is no more alike than it is with an end."
    elif {published.locate(MIN_COSINE), *at} == {"above"}:
        verdict = Verdict.SUPPORTED
        answer = "Yes: at equal distance the middle is more alike than it is with either end."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(select_widest(estimates), MIN_COSINE)
    numbers = f"As published, the cosine within the middle is {format_estimate(published, signed=True)} higher."
    return SHARED_SPACE.answer(verdict, f"{answer} {numbers}", min(ends, key=lambda end: end.value))


def judge_depth_has_three_zones(data: ReportData) -> Finding | None:
    rows, zones = read_contrasts(data, "three_zones"), trained_zones(data)
    if not {"zones", "beyond_walks"} <= set(rows):
        return None
    count, beyond = int(rows["zones"].value), Estimate.read(rows["beyond_walks"])
    least = Estimate.read(rows["least"]) if "least" in rows else None
    below_margin = zones.by_margin if zones else ""
    if count == 1 and beyond.is_below(CLEARER_COSINE):
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = below_margin or "One zone: the best three are no clearer than those of a random walk."
    elif count == 1:
        verdict = Verdict.INCONCLUSIVE
        answer = below_margin or "No border is clearer than in a random walk, and it is not shown that there is none."
    elif least is None or least.locate(MIN_BORDER) != "above":
        verdict = Verdict.INCONCLUSIVE
        answer = "The intervals of the borders include zero, or there are none: it takes more documents."
    else:
        verdict = Verdict.SUPPORTED if count == PUBLISHED_ZONES else Verdict.CONTRADICTED
        answer = f"There are {counted(count, 'zone')}, clearer than those of a random walk."
    if zones and count > 1:
        answer += f" States {zones.in_words}; {counted(zones.ending, 'layer')} after the longest zone."
    return THREE_ZONES.answer(verdict, answer, least)


def judge_all_layers_needed(data: ReportData) -> Finding | None:
    estimates = read_estimates(data, "all_needed", "saved", "rise")
    if estimates is None:
        return _answer_left_out(data, "all_needed", ALL_NEEDED)
    saved, rise = estimates
    of_saved, of_rise = saved.locate(MIN_SAVED), rise.locate(MIN_NATS)
    if of_rise in ("within", "below"):
        verdict, answer = Verdict.CONTRADICTED, "The cost does not rise with the number of skipped layers."
    elif of_saved == "below":
        verdict, answer = Verdict.CONTRADICTED, "Yes: a few layers cost more than their share."
    elif of_saved == of_rise == "above":
        verdict, answer = Verdict.SUPPORTED, "No: a few skipped layers cost less than their share of the whole middle."
    elif of_saved == "within" and of_rise == "above":
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "A few skipped layers cost just their share: fewer cost less because they are fewer."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(saved, MIN_SAVED)
    numbers = f"Skipping the whole middle costs {format_estimate(rise, signed=True)} nats/token more than a few"
    return ALL_NEEDED.answer(verdict, f"{answer} {numbers}{_left_out(data, 'all_needed')}.", saved)


def judge_middle_layers_do_the_same(data: ReportData) -> Finding | None:
    estimates = read_estimates(data, "same_function", "middle_repeat:skip", "middle_repeat")
    if estimates is None:
        return _answer_left_out(data, "same_function", SAME_FUNCTION)
    more, harm = estimates
    if harm.locate(MIN_NATS) in ("within", "below"):
        verdict = Verdict.CONTRADICTED
        answer = "Yes: repeating the center layer in place of the others does no harm."
    elif more.locate(ALIKE) == "below":
        verdict, answer = Verdict.CONTRADICTED, "In part: repeating the center layer costs less than skipping."
    elif more.locate(ALIKE) == "above":
        verdict, answer = Verdict.SUPPORTED, "No: repeating the center layer is worse than skipping the others."
    elif more.locate(ALIKE) == "within" and harm.locate(MIN_NATS) == "above":
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "Repeating does harm, but no more than skipping."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(more, ALIKE)
    costs = _list_costs(data, "same_function", ("middle_repeat", "skip"))
    return SAME_FUNCTION.answer(verdict, f"{answer} {costs}", more)


def judge_order_matters(data: ReportData) -> Finding | None:
    estimates = read_estimates(data, "any_order", *(f"skip:{order}" for order in ORDERS), *ORDERS)
    if estimates is None:
        return _answer_left_out(data, "any_order", ANY_ORDER)
    less, costs = dict(zip(ORDERS, estimates, strict=False)), dict(zip(ORDERS, estimates[2:], strict=True))

    def select(of: Mapping[str, Estimate], *positions: str) -> str:
        return listed([label(order) for order in ORDERS if of[order].locate(ALIKE) in positions])

    if free := select(costs, "within", "below"):
        verdict, answer = Verdict.CONTRADICTED, f"No: layers in {free} cost nothing."
    elif worse := select(less, "below"):
        verdict, answer = Verdict.CONTRADICTED, f"More than presence: {worse} costs more than skipping."
    elif same := select(less, "within"):
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, f"As much as presence: {same} costs what skipping does."
    elif all(estimate.locate(ALIKE) == "above" for estimate in estimates):
        verdict, answer = Verdict.SUPPORTED, "Somewhat: another order costs something, and less than skipping."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(select_widest(estimates), ALIKE)
    closest = min(less.values(), key=lambda estimate: estimate.value)
    return ANY_ORDER.answer(verdict, f"{answer} {_list_costs(data, 'any_order', (*ORDERS, 'skip'))}", closest)


def judge_orders_degrade_gracefully(data: ReportData) -> Finding | None:
    rows = data.rows.where(measure=CONTRAST, claim="graceful", task="all")
    steps, less = (
        {
            order: [Estimate.read(row) for row in rows.where(metric=metric, strategy=order).along("affected").values()]
            for order in ORDERS
        }
        for metric in (EXCESS, LESS)
    )
    if not all(steps.values()):
        return _answer_left_out(data, "graceful", GRACEFUL)
    normal = NormalDist()
    wider = normal.inv_cdf(1 - 0.025 / sum(map(len, steps.values()))) / normal.inv_cdf(0.975)  # Bonferroni
    abrupt = [order for order in ORDERS if any(step.widen(wider).is_above(ABRUPT) for step in steps[order])]
    sides = {order: {each.widen(wider).locate(ALIKE) for each in less[order]} for order in ORDERS}
    worse = [order for order in ORDERS if "below" in sides[order]]
    same = [order for order in ORDERS if {each.locate(ALIKE) for each in less[order]} == {"within"}]
    unsure = [
        order
        for order in ORDERS
        if not all(step.is_below(ABRUPT) for step in steps[order])
        or not all(each.is_above(-ALIKE) for each in less[order])
        or "above" not in sides[order]
    ]
    steepest = max((step for order in ORDERS for step in steps[order]), key=lambda step: step.value)
    if abrupt:
        verdict, answer = Verdict.CONTRADICTED, f"No: {_name(abrupt)} has an abrupt step."
    elif worse:
        verdict, answer = Verdict.CONTRADICTED, f"No: {_name(worse)} costs more than skipping at some window."
    elif same:
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = f"Like skipping: {_name(same)} costs what skipping does at every window."
    elif not unsure:
        verdict, answer = Verdict.SUPPORTED, "Yes: no step is abrupt, and the layers cost less than skipped ones."
    elif not all(step.has_interval for order in ORDERS for step in steps[order]):
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(steepest, ABRUPT)
    else:
        draws = ", or more draws" if "random" in unsure else ""
        verdict = Verdict.INCONCLUSIVE
        answer = f"Intervals of {_name(unsure)} allow both answers: it takes more text{draws}."
    return GRACEFUL.answer(verdict, answer, steepest)


def judge_layers_run_in_parallel(data: ReportData) -> Finding | None:
    estimates = read_estimates(data, "parallel", "skip:parallel", "parallel:reverse")
    if estimates is None:
        return _answer_left_out(data, "parallel", PARALLEL)
    skipped, reverse = estimates
    if skipped.locate(ALIKE) == "below":
        verdict, answer = Verdict.CONTRADICTED, "No: layers in parallel cost more than skipped ones."
    elif skipped.locate(ALIKE) == "within":
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "Layers in parallel cost what skipped ones do."
    elif reverse.locate(ALIKE) in ("within", "below"):
        verdict, answer = Verdict.CONTRADICTED, "Better than published: they cost no more than reversed ones."
    elif skipped.locate(ALIKE) == reverse.locate(ALIKE) == "above":
        verdict, answer = Verdict.SUPPORTED, "Yes: they cost more than reversed layers and less than skipped ones."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(select_widest(estimates), ALIKE)
    costs = _list_costs(data, "parallel", ("reverse", "parallel", "skip"))
    return PARALLEL.answer(verdict, f"{answer} {costs}", skipped)


def judge_order_by_task(data: ReportData) -> Finding | None:
    rows = {row.metric: row for row in data.rows.where(measure=CONTRAST, claim="order_by_task", against=PRESENT)}
    less = Estimate.read_bounded(rows.get("order_less"))
    if less is None:
        return None
    ratio = Estimate.read_bounded(rows.get(LOG_RATIO))
    at = None if ratio is None else ratio.locate(LOG_FACTOR)
    if less.is_below():
        verdict, answer = Verdict.CONTRADICTED, "No: another order costs more on text."
    elif not less.is_above():
        verdict, answer = Verdict.INCONCLUSIVE, "The two are not distinguished."
    elif ratio is None:
        verdict = Verdict.INCONCLUSIVE
        answer = "No plan skips the layers, so the task may just be fragile."
    elif at == "above":
        verdict, answer = Verdict.SUPPORTED, "Yes: order matters more for reasoning than skipping does."
    elif at in ("within", "below"):
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "Reasoning is fragile: skipping layers costs it as many times more."
    else:
        verdict = Verdict.INCONCLUSIVE
        answer = f"Whether reasoning is just fragile is inconclusive{describe_text_needed(ratio, LOG_FACTOR)}."
    compared = f"Reasoning is {rows['order_less'].task}, text is {rows['order_less'].against}"
    if ratio is not None:
        times = format_estimate(ratio.exponentiate())
        compared += f"; relative to skipping, order costs {times} times as much on reasoning"
    return ORDER_BY_TASK.answer(verdict, f"{answer} {compared}.", less)


def judge_looping_helps(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "looping")
    if "parallel:looped_parallel" not in rows:
        return _answer_left_out(data, "looping", LOOPING)
    helps = Estimate.read(rows["parallel:looped_parallel"])
    gain = Estimate.read(rows["gain:looped_parallel"]) if "gain:looped_parallel" in rows else None
    at, at_gain = helps.locate(ALIKE), gain and gain.locate(ALIKE)
    if at in ("within", "below"):
        verdict, answer = Verdict.CONTRADICTED, "No: three passes cost no less than one."
    elif at == "above" and at_gain in ("within", "below"):
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "No more than a gain of 3 in one pass does."
    elif at == at_gain == "above":
        verdict, answer = Verdict.SUPPORTED, "Yes: three passes cost less than one, and than one with a gain of 3."
    elif at == "above" and gain is None:
        verdict = Verdict.SUPPORTED
        answer = "Yes: three passes cost less than one (the null needs --families painters,looped,gain_sweep)."
    else:
        verdict = Verdict.INCONCLUSIVE
        answer = describe_undecided(select_widest(each for each in (helps, gain) if each), ALIKE)
    costs = _list_costs(data, "looping", ("looped_parallel", "parallel"))
    return LOOPING.answer(verdict, f"{answer} {costs}", helps)


def judge_more_layers_take_more_loops(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, LOOP_COUNT)
    if not {"slope", "at_end"} <= set(rows):
        return _answer_left_out(data, LOOP_COUNT, MORE_LOOPS)
    slope, at_end = Estimate.read(rows["slope"]), int(rows["at_end"].value)
    gain = Estimate.read(rows["gain:loops"]) if "gain:loops" in rows else None
    at, at_gain = slope.locate(MIN_LOOPS), gain and gain.locate(ALIKE)
    if at in ("within", "below") and not at_end:
        verdict, answer = Verdict.CONTRADICTED, "No: more parallel layers take no more loops."
    elif at == "above" and at_gain in ("within", "below"):
        verdict = Verdict.NO_BETTER_THAN_NULL
        answer = "Yes, but one pass at the best gain costs no more: loops make up for the mean of more layers."
    elif at == at_gain == "above":
        verdict, answer = Verdict.SUPPORTED, "Yes, and no gain in one pass does as well."
    elif at == "above" and gain is None:
        verdict, answer = Verdict.SUPPORTED, "Yes (the null needs --families painters,looped,gain_sweep)."
    elif at_end:
        verdict, answer = Verdict.INCONCLUSIVE, "More loops than were run may be best."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(slope, MIN_LOOPS)
    numbers = []
    if gain is not None:
        numbers.append(f"the best gains cost {format_estimate(gain, signed=True)} of the mean of both more")
    if at_end:
        numbers.append(f"{counted(at_end, 'window')} best at the greatest count run")
    note = f" On held-out text: {'; '.join(numbers)}." if numbers else ""
    return MORE_LOOPS.answer(verdict, answer + note, slope)


def judge_strategies_rank_as_published(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "ranking")
    if not {"tau", *PAIRS, *PAINTERS_RANKING} <= set(rows):
        return _answer_left_out(data, "ranking", RANKING)
    pairs = {pair: Estimate.read(rows[pair]) for pair in PAIRS}
    at = {pair: estimate.locate(ALIKE) for pair, estimate in pairs.items()}
    as_published, reverse = (list(at.values()).count(position) for position in ("above", "below"))
    if {at[pair] for pair in NEIGHBOURS} == {"within"}:
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "The strategies cost the same, so there is nothing to rank."
    elif as_published >= MIN_AS_PUBLISHED:
        verdict, answer = Verdict.SUPPORTED, f"Yes: {as_published} of {len(PAIRS)} pairs rank as published."
    elif reverse >= MIN_REVERSED:
        verdict, answer = Verdict.CONTRADICTED, f"No: {reverse} of {len(PAIRS)} pairs rank the other way round."
    else:
        verdict = Verdict.INCONCLUSIVE
        answer = describe_undecided(select_widest(pairs[pair] for pair in NEIGHBOURS), ALIKE)
    least_first = sorted(PAINTERS_RANKING, key=lambda name: rows[name].value)
    numbers = [f"{label(name)} {format_estimate(Estimate.read(rows[name]), signed=True)}" for name in least_first]
    note = f"Nats/token, least first: {listed(numbers)}{_left_out(data, 'ranking')}."
    return RANKING.answer(verdict, f"{answer} {note}", Estimate.read(rows["tau"]))


def judge_shallowest(data: ReportData) -> Finding | None:
    return compare_slopes(data, SHALLOWEST, "shallowest", "shallowest", "Nats/token per layer")


def compare_slopes(data: ReportData, question: Question, claim: str, slope_claim: str, unit: str) -> Finding | None:
    """Compare the two strategies that the paper calls shallowest with each of the other four."""
    whole = data.rows.where(measure=CONTRAST, task="all")
    slopes = whole.where(claim=slope_claim, metric=SLOPE).along("strategy")
    compared = {
        (milder, harsher): Estimate.read(row)
        for milder, harsher in MILD_PAIRS
        if (row := whole.one(claim=claim, metric=RELATIVE, strategy=harsher, against=milder)) is not None
    }
    if len(compared) < len(MILD_PAIRS) or not set(PAINTERS_RANKING) <= set(slopes):
        return _answer_left_out(data, claim, question)
    at = {pair: estimate.locate(ALIKE) for pair, estimate in compared.items()}
    reverse = [
        f"{label(harsher)} is shallower than {label(milder)}"
        for (milder, harsher), position in at.items()
        if position == "below"
    ]
    if set(at.values()) == {"within"}:
        verdict, answer = Verdict.NO_BETTER_THAN_NULL, "All slopes are alike."
    elif len(reverse) > 1:
        verdict, answer = Verdict.CONTRADICTED, f"No: {listed(reverse)}."
    elif set(at.values()) == {"above"}:
        verdict, answer = Verdict.SUPPORTED, "Yes: both are shallower than each of the others."
    else:
        verdict, answer = Verdict.INCONCLUSIVE, describe_undecided(select_widest(compared.values()), ALIKE)
    least_first = sorted(PAINTERS_RANKING, key=lambda name: slopes[name].value)
    numbers = [f"{label(name)} {format_estimate(Estimate.read(slopes[name]))}" for name in least_first]
    closest = min(compared.values(), key=lambda estimate: estimate.value)
    return question.answer(verdict, f"{answer} {unit}, least first: {listed(numbers)}.", closest)


def _name(orders: Sequence[str]) -> str:
    return listed([label(order) for order in orders])


def _list_costs(data: ReportData, claim: str, names: Sequence[str]) -> str:
    rows = {**read_contrasts(data, "ranking"), **read_contrasts(data, claim)}
    known = {name: rows.get(f"cost:{name}", rows.get(name)) for name in names}
    costs = [
        f"{label(name)} {format_estimate(Estimate.read(row), signed=True)}"
        for name, row in known.items()
        if row is not None
    ]
    return f"Mean costs in nats/token: {listed(costs)}{_left_out(data, claim)}." if costs else ""


def _left_out(data: ReportData, claim: str) -> str:
    rows = read_contrasts(data, claim)
    left_out, compared = (int(rows[name].value) if name in rows else 0 for name in ("left_out", "windows"))
    if not left_out:
        return ""
    return f"; {left_out} of {counted(left_out + compared, 'window')} left out (a plan loses more than a unigram model)"


def _answer_left_out(data: ReportData, claim: str, question: Question) -> Finding | None:
    left_out = _left_out(data, claim)
    return question.answer(Verdict.INCONCLUSIVE, f"Too few windows can be compared{left_out}.") if left_out else None


PAINTERS_FINDINGS = (
    judge_middle_layers_share_space,
    judge_depth_has_three_zones,
    judge_all_layers_needed,
    judge_middle_layers_do_the_same,
    judge_order_matters,
    judge_orders_degrade_gracefully,
    judge_layers_run_in_parallel,
    judge_order_by_task,
    judge_looping_helps,
    judge_more_layers_take_more_loops,
    judge_strategies_rank_as_published,
    judge_shallowest,
)
