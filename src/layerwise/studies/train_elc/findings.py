"""Findings on the claims of "Every Layer Counts BERT", judged from the rows of `layerwise train elc`."""

from __future__ import annotations

from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.finding import (
    Finding,
    Paper,
    Published,
    Verdict,
    describe_data_needed,
    find_unfinished,
    format_estimate,
    read_contrasts,
)
from layerwise.page.formatting import format_count, join_words
from layerwise.page.trained import average_by_variant, list_seeds
from layerwise.results import vocabulary as vocab
from layerwise.results.estimate import Estimate
from layerwise.results.rows import Score
from layerwise.results.selection import Rows

PAPER = Paper(
    "Not all layers are equally as important: Every Layer Counts BERT",
    "Charpentier and Samuel, BabyLM 2023, arXiv 2311.02265",
)
TABLE_1 = "arXiv 2410.24159, table 1, of the models of the paper"

MIN_NATS, MIN_ACCURACY, MIN_MASS, MIN_CORRELATION, MIN_DISTANCE = 0.01, 0.005, 0.05, 0.2, 0.05
"""Smallest effects that matter."""

CHANCE, HELD = 0.5, "elc-frozen"
WIDENED = 1.25
"""Factor that widens the permutation interval, which is too narrow: its standard deviation is 0.061 for 12 layers and 5
seeds, but 0.073 in simulated training runs."""

POWER = (1.960 + 0.842) / 1.960
"""Minimum detectable effect at 80 % power, in multiples of the half-width of a 95 % interval."""

LEARNED = (
    "If the accuracy on minimal pairs is not shown to exceed chance, the finding is inconclusive. If validation loss"
    " was still falling, the finding cannot be contradicted. Intervals are over seeds (Student's t, 95 %)."
)
MORE_SEEDS = "A single training run has no interval over seeds: train at least two seeds."


def judge_weights_worth_their_time(data: ReportData) -> Finding | None:
    """Compare the held-out loss of elc with that of ltg after equal time, and with that of elc-frozen."""
    return _judge_gain(
        data,
        Finding(
            "Are learned layer weights worth the time that they take?",
            "",
            unit="nats per masked token less than the backbone",
            margin=MIN_NATS,
            rule="The gain over ltg, trained with the same seeds for the same seconds, and the gain over elc-frozen,"
            f" whose weights keep their initial values, must both be above zero. {LEARNED}",
            published=Published(
                PAPER,
                "With learned weights on the earlier layers, the same backbone is better after the same training.",
                "74.3 and 65.9 points overall after 100 and 10 million words; no loss is given",
                "abstract",
            ),
        ),
        _read_gains(data, vocab.MASKED_LM, vocab.SECONDS, -1.0),
    )


def judge_more_grammar_learned(data: ReportData) -> Finding | None:
    """Compare the accuracy of elc on minimal pairs with those of ltg and elc-frozen after equal steps."""
    gains = _read_gains(data, vocab.PAIRS, vocab.TOKENS, 1.0)
    return _judge_gain(
        data,
        Finding(
            "Do models with learned layer weights know more grammar?",
            "",
            unit="points of accuracy above ltg, the backbone",
            margin=MIN_ACCURACY,
            rule="The gain over ltg, trained with the same seeds for the same steps, and the gain over elc-frozen,"
            f" whose weights keep their initial values, must both be above zero. {LEARNED}",
            published=Published(
                PAPER,
                "After the same number of steps, more minimal pairs of BLiMP are right.",
                "0.5 points after 100 million words, −0.1 after 10 million",
                TABLE_1,
            ),
        ),
        gains,
        points=True,
    )


def _read_gains(data: ReportData, task: str, terms: str, better: float) -> tuple[Estimate, Estimate | None] | None:
    """Read the gains of elc over its backbone and over elc-frozen; `better` is the sign of an improvement."""
    rows = data.rows.where(measure=vocab.STUDY, metric="difference", task=task, variant=vocab.LAYER_WEIGHTS)
    backbone = rows.one(against=vocab.BACKBONE, unit=terms)
    if backbone is None:
        return None
    held = rows.one(against=HELD, unit=terms) or rows.one(against=HELD, unit=vocab.TOKENS)
    frozen = Estimate.read_bounded(held)
    return Estimate.read(backbone).scale(better), frozen and frozen.scale(better)


def _judge_gain(
    data: ReportData, finding: Finding, gains: tuple[Estimate, Estimate | None] | None, *, points: bool = False
) -> Finding | None:
    if gains is None or finding.margin is None:
        return None
    gain, learned = gains
    position, from_learning = gain.locate(finding.margin), learned and learned.locate(finding.margin)
    unsettled = _describe_untrained(data, vocab.BACKBONE, position == "below", vocab.LAYER_WEIGHTS)
    needed = describe_data_needed(gain, finding.margin, "the seeds")
    unlearned = "No more than the null: the gain is as large if the weights keep their initial values."
    unknown = "The model gains, but only elc-frozen with an interval could show whether learned weights are the reason."
    verdict, answer = _first_of(
        (not gain.has_interval, Verdict.INCONCLUSIVE, MORE_SEEDS),
        (unsettled, Verdict.INCONCLUSIVE, unsettled),
        (position == "within", Verdict.NO_BETTER_THAN_NULL, "No: the backbone does as well."),
        (position == "below", Verdict.CONTRADICTED, "No: the backbone does better."),
        (position == "open", Verdict.INCONCLUSIVE, f"The interval is compatible with both yes and no.{needed}"),
        (
            from_learning == "above",
            Verdict.SUPPORTED,
            "Yes, and the gain is lost if the weights keep their initial values.",
        ),
        (from_learning in ("within", "below"), Verdict.NO_BETTER_THAN_NULL, unlearned),
        (True, Verdict.INCONCLUSIVE, unknown),
    )
    scale = 100.0 if points else 1.0
    if learned is not None:
        frozen = learned.clip(-1.0, 1.0) if points else learned
        answer += f" Compared with frozen weights, the gain is {format_estimate(frozen.scale(scale), signed=True)}."
    estimate = (gain.clip(-1.0, 1.0) if points else gain).scale(scale)
    return replace(finding, answer=answer, verdict=verdict, estimate=estimate, margin=scale * finding.margin)


def judge_embedding_and_last_layer_first(data: ReportData) -> Finding | None:
    """Judge whether the embedding and the previous layer get more weight than equal shares, and more than initially."""
    variant = _find_variant(data.rows.where(measure=vocab.CONTRAST, claim="pattern", metric="learned").axis("task"))
    rows = read_contrasts(data, "pattern", variant)
    if "learned" not in rows or "above_equal" not in rows:
        return None
    equal, learned = (Estimate.read(rows[metric]) for metric in ("above_equal", "learned"))
    above, moved = equal.locate(MIN_MASS), learned.locate(MIN_MASS)
    unsettled = _describe_untrained(data, variant, above == "below", variant)
    needed = describe_data_needed(learned, MIN_MASS, "the seeds")
    verdict, answer = _first_of(
        (not (equal.has_interval and learned.has_interval), Verdict.INCONCLUSIVE, MORE_SEEDS),
        (unsettled, Verdict.INCONCLUSIVE, unsettled),
        (
            above == "within",
            Verdict.NO_BETTER_THAN_NULL,
            "No more than the null: with equal shares, they have as much weight.",
        ),
        (above == "below", Verdict.CONTRADICTED, "No: they have less weight than equal shares would give them."),
        ("open" in (above, moved), Verdict.INCONCLUSIVE, f"The intervals are compatible with both yes and no.{needed}"),
        (moved == "above", Verdict.SUPPORTED, "Yes: training moved weight to these two sources."),
        (True, Verdict.NO_BETTER_THAN_NULL, "No more than the null: the initial weights already had this pattern."),
    )
    percent = format_estimate(equal.scale(100.0), signed=True)
    return Finding(
        "Do layers read mostly the embedding and the layer before them?",
        f"{answer} In {variant}, these two sources have {percent} points more weight than with equal shares.",
        verdict,
        learned.scale(100.0),
        "points more weight than before training",
        100.0 * MIN_MASS,
        "In layers with at least three sources, the weight on the embedding and on the previous layer must be above"
        f" equal shares and above its initial value. {LEARNED}",
        Published(
            PAPER,
            "Layers put most of their weight on the embedding and on the layer before them.",
            "heat maps, no number",
            "heat maps of the layer weights",
        ),
    )


def judge_weights_alike(data: ReportData) -> Finding | None:
    """Compare the correlation of two seeds' layer weights with its value after permuting the states that layers read.

    The correlation is computed with and without the initial weights, which all seeds share.
    """
    rows = data.rows.where(measure=vocab.SEED_AGREEMENT, metric="correlation")
    variant = _find_variant(rows.where(condition=vocab.BEYOND_START).axis("variant"))
    beyond, raw = (_read_above_chance(rows, variant, condition) for condition in (vocab.BEYOND_START, None))
    if beyond is None or raw is None:
        return None
    position, as_they_are = beyond.locate(MIN_CORRELATION), raw.locate(MIN_CORRELATION)
    is_nothing = position in ("within", "below")
    unsettled = _describe_untrained(data, variant, is_nothing and as_they_are != "above", variant)
    needed = describe_data_needed(beyond, MIN_CORRELATION, "the pairs of seeds")
    only_start = "No more than the null: only the shared initial weights are alike."
    verdict, answer = _first_of(
        (unsettled, Verdict.INCONCLUSIVE, unsettled),
        (
            position == "above",
            Verdict.SUPPORTED,
            "Yes: the weights of two runs are alike beyond their shared initial weights.",
        ),
        (is_nothing and as_they_are == "above", Verdict.NO_BETTER_THAN_NULL, only_start),
        (is_nothing, Verdict.CONTRADICTED, "No: each training run learns different weights."),
        (True, Verdict.INCONCLUSIVE, f"The band of the permutations is compatible with both yes and no.{needed}"),
    )
    count = format_count(len(list_seeds(data, variant)), "seed")
    return Finding(
        "Does every training run learn the same layer weights?",
        f"{answer} Including the shared initial weights, the correlation of {count} of {variant} is"
        f" {format_estimate(raw, signed=True)} above chance.",
        verdict,
        beyond,
        "of rank correlation above chance, after removing the initial weights",
        MIN_CORRELATION,
        "The mean rank correlation of two training runs, minus that of permuted sources, must be above zero after the"
        " shared initial weights are removed. The interval is 1.25 times as wide as that of the permutations."
        f" {LEARNED}",
        Published(
            PAPER,
            "The paper shows the layer weights of one training run as the pattern of the model.",
            "one training run of each, no number",
            "heat maps of the layer weights",
        ),
    )


def judge_weights_not_uniform(data: ReportData) -> Finding | None:
    """Compare the distance of the layer weights from equal shares with the margin and with its initial value."""
    rows = data.rows.where(measure=vocab.UNIFORMITY, layer=None, part=None)
    variant = _find_variant(rows.where(metric="distance").axis("variant"))
    own = rows.where(variant=variant)
    distance, learned = (Estimate.read_bounded(own.one(metric=metric)) for metric in ("distance", "learned"))
    if distance is None or learned is None:
        return None
    moved = learned.locate(MIN_DISTANCE)
    unsettled = _describe_untrained(data, variant, distance.is_below(MIN_DISTANCE), variant)
    is_open = not distance.is_above(MIN_DISTANCE) or moved == "open"
    began_so = "No more than the null: the initial weights were as far from equal shares."
    verdict, answer = _first_of(
        (unsettled, Verdict.INCONCLUSIVE, unsettled),
        (distance.is_below(MIN_DISTANCE), Verdict.CONTRADICTED, "No: the weights are equal shares, within the margin."),
        (is_open, Verdict.INCONCLUSIVE, "The intervals are compatible with both yes and no."),
        (moved == "above", Verdict.SUPPORTED, "Yes: training moved the weights away from equal shares."),
        (True, Verdict.NO_BETTER_THAN_NULL, began_so),
    )
    return Finding(
        "Do layers learn to prefer some layers over others?",
        f"{answer} Training changed the distance of {variant} from equal shares by"
        f" {format_estimate(learned, signed=True)}.",
        verdict,
        distance,
        "(distance from equal shares)",
        MIN_DISTANCE,
        "The distance from equal shares is the weight that would have to move to make them equal. It must be above 0.05"
        f" and above its initial value. {LEARNED}",
        Published(PAPER, "Not all layers are equally important.", "heat maps, no number", "title and heat maps"),
    )


def _first_of(*cases: tuple[bool | str, Verdict, str]) -> tuple[Verdict, str]:
    """Return the verdict and the answer of the first case whose condition holds."""
    return next((verdict, answer) for holds, verdict, answer in cases if holds)


def _find_variant(variants: tuple[str, ...]) -> str:
    return vocab.LAYER_WEIGHTS if vocab.LAYER_WEIGHTS in variants else next(iter(variants), vocab.LAYER_WEIGHTS)


def _describe_untrained(data: ReportData, variant: str, is_contradicted: bool, contradicted_variant: str) -> str:
    """Explain why a variant cannot test a finding (it learned nothing, or its loss was still falling), or return ""."""
    pairs = average_by_variant(data.rows.where(measure=vocab.PAIRS, metric="accuracy", task=vocab.ALL))
    skill = Estimate.read_bounded(pairs.one(variant=variant))
    if skill is None or not skill.is_above(CHANCE):
        return f"{variant} is not shown to exceed chance on minimal pairs, so it cannot answer this question."
    unfinished = find_unfinished(data, contradicted_variant) if is_contradicted else []
    if unfinished:
        return f"The validation loss of {join_words(unfinished)} was still falling when training ended."
    return ""


def _read_above_chance(rows: Rows, variant: str, condition: str | None) -> Estimate | None:
    own = rows.where(variant=variant, condition=condition)
    score: Score | None = own.one(against=None)
    band = Estimate.read_bounded(own.one(against=vocab.SHUFFLED))
    if score is None or band is None:
        return None
    value, half = score.value - band.value, WIDENED * (band.high - band.low) / 2
    low, high = max(-1.0 - band.value, value - half), min(1.0 - band.value, value + half)
    return Estimate(value, low, high, mde=POWER * half)


ELC_FINDINGS = (
    judge_weights_worth_their_time,
    judge_more_grammar_learned,
    judge_embedding_and_last_layer_first,
    judge_weights_alike,
    judge_weights_not_uniform,
)
