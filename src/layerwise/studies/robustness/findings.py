"""The questions of LayerShuffle, each answered from the rows of trained models that were compared."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from layerwise.page.data import ReportData
from layerwise.page.evidence import describe_data_needed, find_unfinished, read_contrasts, read_nulls
from layerwise.page.finding import Finding, Published, Question, Verdict, format_estimate
from layerwise.page.papers import LAYERSHUFFLE
from layerwise.page.text.wording import listed
from layerwise.results.estimate import Estimate, Position
from layerwise.results.vocabulary import CHANCE, CONTRAST, ROBUSTNESS

ABOVE_CHANCE, MAX_COST, MIN_GAIN, MIN_SPARED = 0.05, 0.25, 0.05, 0.1
PUBLISHED_RIGHT, MAX_SHORT, POSITION_GAIN, MAX_LOSS = 0.9999, 0.02, 0.03, 0.05
RELATED, OTHER_LAYERS, LEVEL = 0.3, 0.1, 0.05
SUPPORTED, CONTRADICTED, INCONCLUSIVE = Verdict.SUPPORTED, Verdict.CONTRADICTED, Verdict.INCONCLUSIVE
NO_BETTER = Verdict.NO_BETTER_THAN_NULL
INFORMED = ("layershuffle-position", "layershuffle-predict")
POINTS = "percentage points"

NOT_LEARNED = "{} is not shown to do better than chance by 5 points: a model that has not learned decides nothing."
ONE_TRAINING = "There is no interval: it takes two seeds and 8 batches of examples."
CAUTION = (
    " Intervals are over seeds and batches; a model not shown to be 5 points above chance decides nothing, and a"
    " training whose validation loss was still falling contradicts nothing."
)

TRAINED_ORDER = Question(
    "Does training in random order cost at most 25 points?",
    "The cost is the accuracy of the baseline in order minus that of layershuffle in random order. The null is every"
    f" variant trained in order, which must keep less in random order by {100 * MIN_GAIN:g} points.{CAUTION}",
    Published(
        LAYERSHUFFLE,
        "Trained and run in random order a ViT keeps 62.77 %, about 20 points below the ordinary model in order.",
        "19.84 points",
        "Table 1",
    ),
    POINTS,
    100 * MAX_COST,
)
COLLAPSE = Question(
    "Does an ordinary model collapse in random order?",
    f"In random order the baseline must be less than 5 points above the commonest label.{CAUTION}",
    Published(
        LAYERSHUFFLE,
        "In random order a model trained in order falls from 82.61 % to 0.13 %, which is chance.",
        "0.03 points above chance",
        "Table 1",
    ),
    "points above chance",
    100 * ABOVE_CHANCE,
)
PRUNING = Question(
    "Does training in random order make pruning graceful?",
    "The decline is the share of the accuracy above chance that is lost with half of the layers. It must be smaller"
    f" than that of every variant trained in order by {MIN_SPARED:.0%}.{CAUTION}",
    Published(
        LAYERSHUFFLE,
        "Without further training, accuracy falls gradually as layers are skipped.",
        "70 to 80 % with 9 of 12 layers in order, about 18 % with 3",
        "figure 1",
    ),
    "% lost less than the baseline",
    100 * MIN_SPARED,
)
POSITIONS = Question(
    "Can layers predict their position?",
    "Accuracy must be within 2 points of the published one. The null is a linear probe of models trained in order,"
    f" which must fall short by more.{CAUTION}",
    Published(
        LAYERSHUFFLE,
        "A layer trained to predict its position from its output is right in 99.99 % of the cases.",
        "99.99 %",
        "section 4",
    ),
    "points short of the published accuracy",
    100 * MAX_SHORT,
)
INFORMED_LAYERS = Question(
    "Does it help layers to know their position?",
    f"In random order every informed variant must be within 3 points of layershuffle.{CAUTION}",
    Published(
        LAYERSHUFFLE,
        "Layers that have or predict their position do about as well in random order: 63.61 and 61.18 against 62.77 %.",
        "+0.84 and −1.59 points",
        "Table 1",
    ),
    POINTS,
    100 * POSITION_GAIN,
)
MERGING = Question(
    "Can models trained in random order be merged without loss?",
    "The loss is the mean accuracy of the models minus that of those merged from them, in random order. The null is"
    f" models trained in order, merged at their own depth.{CAUTION}",
    Published(
        LAYERSHUFFLE,
        "One layer each of 12 models reaches 59.68 %, where each model reaches 62.77 %; ordinary models reach 1.87 %.",
        "3.09 points",
        "section 4.4, Table 2",
    ),
    "points lost",
    100 * MAX_LOSS,
)
SWITCHING_OFF = Question(
    "Do layers switch off where they are not needed?",
    f"The rank correlation over positions of what a layer adds with its importance there must exceed {RELATED:g}, that"
    f" of shuffled positions (p < {LEVEL:g}) and that with other layers' importance; models trained in order are the"
    f" null.{CAUTION}",
    Published(
        LAYERSHUFFLE,
        "Layers may learn to switch off their output for inputs that they cannot process.",
        "asked, not measured",
        "section 5",
    ),
    "of rank correlation",
    RELATED,
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
        (cost.is_above(MAX_COST), CONTRADICTED, "No: it costs more."),
        ("below" in at, CONTRADICTED, "No: a model trained in order keeps more in random order."),
        (is_cheap and "within" in at, NO_BETTER, "Yes, but training in order keeps as much in random order."),
        (is_cheap and at == {"above"}, SUPPORTED, "Yes, and training in order does not give it."),
        (True, INCONCLUSIVE, _undecided(cost, MIN_GAIN)),
    )
    numbers = listed([f"{_points(gain)} points above {name}" for name, gain in gains.items()])
    return TRAINED_ORDER.answer(verdict, f"{answer} In random order layershuffle is {numbers}.", shown)


def judge_ordinary_model_collapses(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "collapse")
    if "random_order" not in rows:
        return None
    chance = data.rows.value(measure=ROBUSTNESS, metric="accuracy", arm=None, against=CHANCE)
    limits = (-1.0, 1.0) if chance is None else (-chance, 1.0 - chance)
    free, skill = Estimate.read(rows["random_order"]), Estimate.read_bounded(rows.get("in_order"))
    shown = free.clip(*limits).scale(100.0)
    if not free.has_interval or skill is None:
        return COLLAPSE.answer(INCONCLUSIVE, ONE_TRAINING, shown)
    verdict, answer = _decide(
        find_unfinished(data, "baseline"),
        (not skill.is_above(ABOVE_CHANCE), INCONCLUSIVE, NOT_LEARNED.format("The baseline in order")),
        (free.is_above(ABOVE_CHANCE), CONTRADICTED, "No: it stays above chance in random order."),
        (free.is_below(ABOVE_CHANCE), SUPPORTED, "Yes: nothing is left in random order."),
        (True, INCONCLUSIVE, _undecided(free, ABOVE_CHANCE)),
    )
    return COLLAPSE.answer(verdict, f"{answer} In order it is {_points(skill, limits)} points above chance.", shown)


def judge_pruning_graceful(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "pruning")
    if "spared_above@baseline" not in rows:
        return None
    spared, lost = read_nulls(rows, "spared_above"), Estimate.read_bounded(rows.get("lost"))
    over_baseline = Estimate.read(rows["spared_above@baseline"])
    if lost is None or not spared:
        return PRUNING.answer(INCONCLUSIVE, ONE_TRAINING, over_baseline.scale(100.0))
    at, reason = _locate(spared, MIN_SPARED), _explain_chance(data)
    verdict, answer = _decide(
        find_unfinished(data, "layershuffle"),
        (bool(reason), INCONCLUSIVE, reason),
        ("below" in at, CONTRADICTED, "No: a model trained in order declines more slowly."),
        ("within" in at, NO_BETTER, "Training in order declines as slowly."),
        (at == {"above"}, SUPPORTED, "Yes: it declines more slowly than models trained in order."),
        (True, INCONCLUSIVE, _undecided(over_baseline, MIN_SPARED)),
    )
    numbers = f"With half of the layers layershuffle loses {_points(lost)} % of its accuracy above chance."
    return PRUNING.answer(verdict, f"{answer} {numbers}", over_baseline.scale(100.0))


def judge_layers_know_positions(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "positions")
    if "short" not in rows:
        return None
    short, probes = Estimate.read(rows["short"]), read_nulls(rows, "short")
    shown = short.clip(PUBLISHED_RIGHT - 1, PUBLISHED_RIGHT).scale(100.0)
    if not short.has_interval:
        return POSITIONS.answer(INCONCLUSIVE, ONE_TRAINING, shown)
    is_right = short.is_below(MAX_SHORT)
    beats_chance = data.depth > 0 and short.is_below(PUBLISHED_RIGHT - 1 / data.depth)
    verdict, answer = _decide(
        find_unfinished(data, "layershuffle-predict"),
        (
            not beats_chance,
            INCONCLUSIVE,
            "The prediction is not shown to beat chance: a model that has not learned decides nothing.",
        ),
        (short.is_above(MAX_SHORT), CONTRADICTED, "Less often than published."),
        (not is_right, INCONCLUSIVE, _undecided(short, MAX_SHORT)),
        (not probes, INCONCLUSIVE, "No model trained in order was probed: train the baseline."),
        (
            any(probe.is_below(MAX_SHORT) for probe in probes.values()),
            NO_BETTER,
            "Yes, but states of models trained in order predict it as well.",
        ),
        (
            all(probe.is_above(MAX_SHORT) for probe in probes.values()),
            SUPPORTED,
            "Yes, and the states of models trained in order do not predict it.",
        ),
        (True, INCONCLUSIVE, "The intervals of the probes allow both answers."),
    )
    probed = listed([f"{name} {_points(probe)}" for name, probe in probes.items()])
    return POSITIONS.answer(verdict, f"{answer} Probes fall short by: {probed}." if probed else answer, shown)


def judge_position_helps(data: ReportData) -> Finding | None:
    rows = data.rows.where(measure=CONTRAST, claim="position_informed", metric="gain", task=INFORMED).along("task")
    if not rows:
        return None
    gains = {arm: Estimate.read(rows[arm]) for arm in INFORMED if arm in rows}
    widest = max(gains.values(), key=lambda gain: abs(gain.value))
    shown, skill = widest.clip(-1.0, 1.0).scale(100.0), _read_skill(data, "position_informed", "random_order")
    if skill is None or not all(gain.has_interval for gain in gains.values()):
        return INFORMED_LAYERS.answer(INCONCLUSIVE, ONE_TRAINING, shown)
    differs = any(gain.is_above(POSITION_GAIN) or gain.is_below(-POSITION_GAIN) for gain in gains.values())
    verdict, answer = _decide(
        find_unfinished(data, "layershuffle", *INFORMED),
        (not skill.is_above(ABOVE_CHANCE), INCONCLUSIVE, NOT_LEARNED.format("Layershuffle in random order")),
        (differs, CONTRADICTED, "It makes a difference of more than 3 points."),
        (_locate(gains, POSITION_GAIN) == {"within"}, SUPPORTED, "Little: no variant differs by 3 points."),
        (True, INCONCLUSIVE, _undecided(widest, POSITION_GAIN)),
    )
    numbers = listed([f"{arm} {_points(gain)}" for arm, gain in gains.items()])
    return INFORMED_LAYERS.answer(verdict, f"{answer} Compared with layershuffle: {numbers} points.", shown)


def judge_merging_lossless(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "merging")
    if "loss" not in rows:
        return None
    loss, skill = Estimate.read(rows["loss"]), Estimate.read_bounded(rows.get("skill"))
    rivals, skills = read_nulls(rows, "loss"), read_nulls(rows, "skill")
    shown = loss.clip(-1.0, 1.0).scale(100.0)
    if not loss.has_interval or skill is None:
        return MERGING.answer(INCONCLUSIVE, ONE_TRAINING, shown)
    is_small, rivals_lose = loss.is_below(MAX_LOSS), all(rival.is_above(MAX_LOSS) for rival in rivals.values())
    has_learned = all(each.is_above(ABOVE_CHANCE) for each in (skill, *skills.values()))
    rival_keeps = any(rival.is_below(MAX_LOSS) for rival in rivals.values())
    verdict, answer = _decide(
        find_unfinished(data, "layershuffle"),
        (not has_learned, INCONCLUSIVE, NOT_LEARNED.format("A model that is merged")),
        (loss.is_above(MAX_LOSS), CONTRADICTED, "No: more than 5 points are lost."),
        (not rivals, INCONCLUSIVE, "No models trained in order were merged: train two seeds of baseline."),
        (is_small and rival_keeps, NO_BETTER, "Yes, but so can models trained in order."),
        (is_small and rivals_lose, SUPPORTED, "Yes, where models trained in order lose more than 5 points."),
        (True, INCONCLUSIVE, _undecided(loss, MAX_LOSS)),
    )
    numbers = listed([f"{name} {_points(rival)}" for name, rival in rivals.items()])
    return MERGING.answer(verdict, f"{answer} Points lost by the null: {numbers}." if numbers else answer, shown)


def judge_layers_switch_off(data: ReportData) -> Finding | None:
    rows = read_contrasts(data, "switching_off")
    if not {"relation", "above_other_layers"} <= set(rows):
        return None
    relation, own = Estimate.read(rows["relation"]), Estimate.read(rows["above_other_layers"])
    p, rivals = rows["relation"].p, read_nulls(rows, "relation")
    shown, skill = relation.clip(-1.0, 1.0), _read_skill(data, "position_informed", "random_order")
    if not relation.has_interval or not own.has_interval:
        return SWITCHING_OFF.answer(INCONCLUSIVE, ONE_TRAINING, shown)
    is_related, has_learned = relation.is_above(RELATED), skill is not None and skill.is_above(ABOVE_CHANCE)
    rival_is_related = any(rival.is_above(RELATED) for rival in rivals.values())
    rivals_are_not = all(rival.is_below(RELATED) for rival in rivals.values())
    is_its_own = p is not None and p < LEVEL and own.is_above() and rivals_are_not
    verdict, answer = _decide(
        find_unfinished(data, "layershuffle"),
        (not has_learned, INCONCLUSIVE, NOT_LEARNED.format("Layershuffle in random order")),
        (relation.is_below(RELATED), CONTRADICTED, "No: layers add about as much where they have no importance."),
        (is_related and rival_is_related, NO_BETTER, "Yes, but so do layers of a model trained in order."),
        (is_related and own.is_within(OTHER_LAYERS), NO_BETTER, "The position decides, and not the layer."),
        (not rivals, INCONCLUSIVE, "No model trained in order was measured: train the baseline."),
        (is_related and is_its_own, SUPPORTED, "Yes, and layers of models trained in order do not."),
        (True, INCONCLUSIVE, _undecided(relation, RELATED)),
    )
    beyond = f"{format_estimate(own, signed=True)} above that with other layers' importance"
    others = "".join(f"; {name} {format_estimate(rival.clip(-1.0, 1.0))}" for name, rival in rivals.items())
    return SWITCHING_OFF.answer(verdict, f"{answer} The correlation is {beyond}{others}.", shown)


def _locate(estimates: Mapping[str, Estimate], margin: float) -> set[Position]:
    return {estimate.locate(margin) for estimate in estimates.values()}


def _read_skill(data: ReportData, claim: str, metric: str) -> Estimate | None:
    row = read_contrasts(data, claim).get(metric)
    return None if row is None else Estimate.read(row)


def _explain_chance(data: ReportData) -> str:
    in_order = _read_skill(data, "collapse", "in_order")
    if in_order is None or not in_order.is_above(ABOVE_CHANCE):
        return NOT_LEARNED.format("The baseline in order")
    own = _read_skill(data, "position_informed", "random_order")
    if own is not None and not own.is_above(ABOVE_CHANCE):
        return NOT_LEARNED.format("Layershuffle in random order")
    return ""


def _decide(unfinished: Collection[str], *cases: tuple[bool, Verdict, str]) -> tuple[Verdict, str]:
    """Return the verdict and the answer of the first case that holds; unfinished trainings contradict nothing."""
    verdict, answer = next((verdict, answer) for holds, verdict, answer in cases if holds)
    if verdict is CONTRADICTED and unfinished:
        names = listed(list(unfinished))
        return INCONCLUSIVE, f"The validation loss of {names} was still falling: train for more epochs."
    return verdict, answer


def _undecided(estimate: Estimate, margin: float) -> str:
    return f"The intervals allow both answers.{describe_data_needed(estimate, margin, 'the seeds and images')}"


def _points(estimate: Estimate, limits: tuple[float, float] = (-1.0, 1.0)) -> str:
    return format_estimate(estimate.clip(*limits).scale(100.0))


LAYERSHUFFLE_FINDINGS = (
    judge_random_order_cost,
    judge_ordinary_model_collapses,
    judge_pruning_graceful,
    judge_layers_know_positions,
    judge_position_helps,
    judge_merging_lossless,
    judge_layers_switch_off,
)
