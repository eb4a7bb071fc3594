"""The questions about LayerShuffle that a robustness run answers from the rows of trained models."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from layerwise.page.data import ReportData
from layerwise.page.finding import (
    Finding,
    Paper,
    Published,
    Question,
    Verdict,
    describe_data_needed,
    find_unfinished,
    read_contrasts,
    read_nulls,
)
from layerwise.page.formatting import join_words
from layerwise.results.estimate import Estimate, Position
from layerwise.results.vocabulary import CHANCE, ROBUSTNESS

PAPER = Paper(
    "LayerShuffle: Enhancing Robustness in Vision Transformers by Randomizing Layer Execution Order",
    "Freiberger et al., 2024, arXiv 2407.04513",
)
ABOVE_CHANCE, MAX_COST, MIN_GAIN, MIN_SPARED = 0.05, 0.25, 0.05, 0.1
PUBLISHED_RIGHT, MAX_SHORT, MAX_LOSS = 0.9999, 0.02, 0.05
SUPPORTED, CONTRADICTED, INCONCLUSIVE = Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.INCONCLUSIVE
NO_BETTER = Verdict.NO_BETTER_THAN_NULL

NOT_LEARNED = "{} is not shown to exceed chance by 5 points, so it cannot answer this question."
ONE_TRAINING = "There is no interval, because that requires at least two seeds and 8 batches of examples."
CAUTION = (
    " Intervals are over seeds and batches. A model that is not shown to exceed chance by 5 points cannot answer this"
    " question. If validation loss was still falling, the finding cannot be contradicted."
)

TRAINED_ORDER = Question(
    "Does training in random order cost at most 25 points?",
    "The cost is the accuracy of the baseline in order minus that of layershuffle in random order. The controls are"
    f" models trained in order: all of them must be worse in random order by at least {100 * MIN_GAIN:g} points."
    f"{CAUTION}",
    Published(
        PAPER,
        "Trained and run in random order, a ViT reaches 62.77 %, about 20 points less than the ordinary model in"
        " order.",
        "19.84 points",
        "Table 1",
    ),
    "percentage points",
    100 * MAX_COST,
)
COLLAPSE = Question(
    "Does an ordinary model collapse in random order?",
    "In random order, the accuracy of the baseline must be less than 5 points above chance (the share of the most"
    f" common label).{CAUTION}",
    Published(
        PAPER,
        "In random order, a model trained in order falls from 82.61 % to 0.13 %, which is chance.",
        "0.03 points above chance",
        "Table 1",
    ),
    "points above chance",
    100 * ABOVE_CHANCE,
)
PRUNING = Question(
    "Does training in random order make pruning graceful?",
    "The decline is the share of the accuracy above chance that is lost if half of the layers are skipped. The decline"
    f" of layershuffle must be at least {100 * MIN_SPARED:g} points smaller than that of every variant trained in"
    f" order.{CAUTION}",
    Published(
        PAPER,
        "Without further training, accuracy falls gradually as more layers are skipped.",
        "70 to 80 % with 9 of 12 layers in order, about 18 % with 3",
        "figure 1",
    ),
    "% (decline of the baseline minus that of layershuffle)",
    100 * MIN_SPARED,
)
POSITIONS = Question(
    "Can layers predict their position?",
    "The accuracy of the prediction must be within 2 points of the published one. The control is a linear probe of"
    " models"
    f" trained in order, which must fall short by more than 2 points.{CAUTION}",
    Published(
        PAPER,
        "A layer trained to predict its position from its output is right in 99.99 % of the cases.",
        "99.99 %",
        "section 4",
    ),
    "points short of the published accuracy",
    100 * MAX_SHORT,
)
MERGING = Question(
    "Can models trained in random order be merged without loss?",
    "The loss is the mean accuracy of the models minus that of models merged from them, in random order. The control is"
    f" to merge models trained in order, with the layers in order.{CAUTION}",
    Published(
        PAPER,
        "A model with one layer from each of 12 models reaches 59.68 %, and the 12 models reach 62.77 %; merged from"
        " ordinary models, it reaches 1.87 %.",
        "3.09 points",
        "section 4.4, Table 2",
    ),
    "points lost",
    100 * MAX_LOSS,
)


def judge_random_order_cost(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "trained_order")
    if "cost" not in rows:
        return None
    cost, gains = Estimate.read(rows["cost"]), read_nulls(rows, "gain_above")
    shown = cost.clip(-1.0, 1.0).scale(100.0)
    if not cost.has_interval or not gains:
        return TRAINED_ORDER.answer(INCONCLUSIVE, ONE_TRAINING, shown)
    at, is_cheap, reason = _locate(gains, MIN_GAIN), cost.is_below(MAX_COST), _explain_chance(data)
    verdict, answer = _decide(
        find_unfinished(data, "layershuffle"),
        (bool(reason), INCONCLUSIVE, reason),
        (cost.is_above(MAX_COST), CONTRADICTED, f"No: it costs more than {100 * MAX_COST:g} points."),
        ("below" in at, CONTRADICTED, "No: a model trained in order is better in random order."),
        (is_cheap and "within" in at, NO_BETTER, "Yes, but a model trained in order is as good in random order."),
        (is_cheap and at == {"above"}, SUPPORTED, "Yes, and every model trained in order is worse in random order."),
        (True, INCONCLUSIVE, _describe_undecided(cost, MIN_GAIN)),
    )
    return TRAINED_ORDER.answer(verdict, answer, shown)


def judge_ordinary_model_collapses(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "collapse")
    if "random_order" not in rows:
        return None
    chance = data.rows.value(measure=ROBUSTNESS, metric="accuracy", variant=None, against=CHANCE)
    limits = (-1.0, 1.0) if chance is None else (-chance, 1.0 - chance)
    free, skill = Estimate.read(rows["random_order"]), Estimate.read_bounded(rows.get("in_order"))
    shown = free.clip(*limits).scale(100.0)
    if not free.has_interval or skill is None:
        return COLLAPSE.answer(INCONCLUSIVE, ONE_TRAINING, shown)
    verdict, answer = _decide(
        find_unfinished(data, "baseline"),
        (not skill.is_above(ABOVE_CHANCE), INCONCLUSIVE, NOT_LEARNED.format("The baseline in order")),
        (free.is_above(ABOVE_CHANCE), CONTRADICTED, "No: it stays above chance in random order."),
        (free.is_below(ABOVE_CHANCE), SUPPORTED, "Yes: in random order it is at chance."),
        (True, INCONCLUSIVE, _describe_undecided(free, ABOVE_CHANCE)),
    )
    return COLLAPSE.answer(verdict, answer, shown)


def judge_pruning_graceful(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "pruning")
    if "spared_above@baseline" not in rows:
        return None
    spared, lost = read_nulls(rows, "spared_above"), Estimate.read_bounded(rows.get("lost"))
    over_baseline = Estimate.read(rows["spared_above@baseline"])
    shown = over_baseline.scale(100.0)
    if lost is None or not spared:
        return PRUNING.answer(INCONCLUSIVE, ONE_TRAINING, shown)
    at, reason = _locate(spared, MIN_SPARED), _explain_chance(data)
    verdict, answer = _decide(
        find_unfinished(data, "layershuffle"),
        (bool(reason), INCONCLUSIVE, reason),
        ("below" in at, CONTRADICTED, "No: a model trained in order declines more slowly."),
        ("within" in at, NO_BETTER, "No: a model trained in order declines as slowly."),
        (at == {"above"}, SUPPORTED, "Yes: layershuffle declines more slowly than models trained in order."),
        (True, INCONCLUSIVE, _describe_undecided(over_baseline, MIN_SPARED)),
    )
    return PRUNING.answer(verdict, answer, shown)


def judge_layers_know_positions(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "positions")
    if "short" not in rows:
        return None
    short, probes = Estimate.read(rows["short"]), read_nulls(rows, "short").values()
    shown = short.clip(PUBLISHED_RIGHT - 1, PUBLISHED_RIGHT).scale(100.0)
    if not short.has_interval:
        return POSITIONS.answer(INCONCLUSIVE, ONE_TRAINING, shown)
    beats_chance = data.depth > 0 and short.is_below(PUBLISHED_RIGHT - 1 / data.depth)
    unlearned = "The prediction is not shown to beat chance, so it cannot answer this question."
    if short.mde is not None and short.mde >= PUBLISHED_RIGHT:
        unlearned = f"{unlearned} The run is too small to detect any shortfall."
        shown = Estimate(shown.value)
    equal_null = "Yes, but a linear probe also reads the position from models trained in order."
    beats_null = "Yes, and a linear probe cannot read the position from models trained in order."
    verdict, answer = _decide(
        find_unfinished(data, "layershuffle-predict"),
        (not beats_chance, INCONCLUSIVE, unlearned),
        (short.is_above(MAX_SHORT), CONTRADICTED, "No: the prediction is right less often than published."),
        (not short.is_below(MAX_SHORT), INCONCLUSIVE, _describe_undecided(short, MAX_SHORT)),
        (not probes, INCONCLUSIVE, "No model trained in order was probed. To compare with one, train the baseline."),
        (any(probe.is_below(MAX_SHORT) for probe in probes), NO_BETTER, equal_null),
        (all(probe.is_above(MAX_SHORT) for probe in probes), SUPPORTED, beats_null),
        (True, INCONCLUSIVE, "The intervals of the linear probes are compatible with both yes and no."),
    )
    return POSITIONS.answer(verdict, answer, shown)


def judge_merging_lossless(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "merging")
    if "loss" not in rows:
        return None
    loss, skill = Estimate.read(rows["loss"]), Estimate.read_bounded(rows.get("skill"))
    rivals, skills = read_nulls(rows, "loss").values(), read_nulls(rows, "skill").values()
    shown = loss.clip(-1.0, 1.0).scale(100.0)
    if not loss.has_interval or skill is None:
        return MERGING.answer(INCONCLUSIVE, ONE_TRAINING, shown)
    is_small, has_learned = loss.is_below(MAX_LOSS), all(each.is_above(ABOVE_CHANCE) for each in (skill, *skills))
    rivals_lose = all(rival.is_above(MAX_LOSS) for rival in rivals)
    rival_is_lossless = any(rival.is_below(MAX_LOSS) for rival in rivals)
    verdict, answer = _decide(
        find_unfinished(data, "layershuffle"),
        (not has_learned, INCONCLUSIVE, NOT_LEARNED.format("A merged model")),
        (loss.is_above(MAX_LOSS), CONTRADICTED, "No: more than 5 points are lost."),
        (
            not rivals,
            INCONCLUSIVE,
            "No models trained in order were merged. To compare with them, train two seeds of the baseline.",
        ),
        (
            is_small and rival_is_lossless,
            NO_BETTER,
            "Yes, but models trained in order can be merged without loss, too.",
        ),
        (is_small and rivals_lose, SUPPORTED, "Yes, whereas models trained in order lose more than 5 points."),
        (True, INCONCLUSIVE, _describe_undecided(loss, MAX_LOSS)),
    )
    return MERGING.answer(verdict, answer, shown)


def _locate(estimates: Mapping[str, Estimate], margin: float) -> set[Position]:
    return {estimate.locate(margin) for estimate in estimates.values()}


def _explain_chance(data: ReportData) -> str:
    in_order = Estimate.read_bounded(read_contrasts(data, "collapse").get("in_order"))
    if in_order is None or not in_order.is_above(ABOVE_CHANCE):
        return NOT_LEARNED.format("The baseline in order")
    free = read_contrasts(data, "position_informed").get("random_order")
    if free is not None and not Estimate.read(free).is_above(ABOVE_CHANCE):
        return NOT_LEARNED.format("Layershuffle in random order")
    return ""


def _decide(unfinished: Collection[str], *cases: tuple[bool, Verdict, str]) -> tuple[Verdict, str]:
    """Return the verdict and the answer of the first case that holds.

    If there are unfinished training runs, the verdict `contradicted` is replaced by `inconclusive`.
    """
    verdict, answer = next((verdict, answer) for holds, verdict, answer in cases if holds)
    if verdict is CONTRADICTED and unfinished:
        names = join_words(list(unfinished))
        return INCONCLUSIVE, f"The validation loss of {names} was still falling: train for more epochs."
    return verdict, answer


def _describe_undecided(estimate: Estimate, margin: float) -> str:
    needed = describe_data_needed(estimate, margin, "the seeds and images")
    return f"The intervals are compatible with both yes and no.{needed}"


LAYERSHUFFLE_FINDINGS = (
    judge_random_order_cost,
    judge_ordinary_model_collapses,
    judge_pruning_graceful,
    judge_layers_know_positions,
    judge_merging_lossless,
)
