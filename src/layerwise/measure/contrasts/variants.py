"""Compare pretrained variants with the backbone, from rows of single models.

    study         `difference` of two variants in held-out loss or a score, paired by seed
    initial_bias  `slope`: the change per unit of the initial scalar of the previous layer
    data_share    `difference` from the backbone, both trained on the same fraction of the text, and `by_halving`, the
                  change of this difference with each halving of the text

The task of a row is a question of `collect_answers`. A slope is fitted by least squares for each seed, and its mean
over seeds has a Student t interval. p-values are Holm-corrected over the variants, questions or fractions of a metric.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from layerwise.data.suites.glue import FORMS, GLUE
from layerwise.measure.stats.seeds import SeedDifference, seed_difference
from layerwise.measure.stats.statistics import Numbers, holm_by_key
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import (
    ALL,
    AMBIGUOUS,
    ATTRIBUTION,
    BACKBONE,
    CONTROLS,
    DATA_SHARE,
    INITIAL_BIAS,
    LAYER_WEIGHTS,
    MASKED_LM,
    OUR_MSGS,
    PAIRS,
    STUDY,
    TOKENS,
)

FROZEN, KEPT, ADDED = "elc-frozen", "elc-kept", "ltg-rewired"
"""Variants whose layer weights are never trained, trained in pretraining only, or added for fine-tuning."""

MIN_BIASES = 3
"""Minimum number of biases for a slope. The difference between two variants already has a row."""

ON_SHARES = {MASKED_LM: "nll", PAIRS: "accuracy"}
"""The measures, with their metrics, that are compared between variants trained on fractions of the text."""

_SHARE = re.compile(r"(.+)-share-(\d+(?:\.\d+)?)")
_BIAS = re.compile(rf"{LAYER_WEIGHTS}-bias-(-?\d+(?:\.\d+)?)")

Key = TypeVar("Key", bound=Hashable)
Values = Mapping[str, Mapping[int, float]]


def find_share(variant: str) -> tuple[str, float] | None:
    """Parse the name of a variant trained on a fraction of the text; return the base variant and the fraction.

    >>> find_share("elc-share-0.125"), find_share("elc")
    (('elc', 0.125), None)
    """
    match = _SHARE.fullmatch(variant)
    return None if match is None else (match[1], float(match[2]))


def find_bias(variant: str) -> float | None:
    """Return the initial scalar (before softmax) of the previous layer in a variant, or None if the name implies none.

    >>> find_bias("elc-bias-0.5"), find_bias("elc"), find_bias("zero"), find_bias("ltg")
    (0.5, 1.0, 0.0, None)
    """
    match = _BIAS.fullmatch(variant)
    return {LAYER_WEIGHTS: 1.0, "zero": 0.0}.get(variant) if match is None else float(match[1])


def contrast_variants(rows: Iterable[Score], terms: str = TOKENS) -> list[Score]:
    """Return the differences in held-out loss (nats) and scores between variants trained for equally many `terms`.

    The `terms` are tokens or seconds.
    """
    results: list[Score] = []
    for task, values in collect_answers(rows).items():
        results += _compare_with(BACKBONE, task, terms, values, [variant for variant in values if variant != BACKBONE])
        for other in (FROZEN, KEPT):
            results += _compare_with(other, task, terms, values, [LAYER_WEIGHTS])
    return results


def collect_answers(rows: Iterable[Score]) -> dict[str, Values]:
    """Map each question to the results of every variant and seed, omitting variants trained on a fraction of the text.

    The questions are held-out loss, accuracy on minimal pairs, Matthews' correlation on MSGS tasks that test one
    feature and on ambiguous ones, the mean GLUE score (first metric of each task), and the difference in attribution
    between the linguistic and the surface feature.
    """
    of_models = Rows(row for row in rows if _is_model(row) and find_share(str(row.variant)) is None)
    mixed = of_models.where(measure=OUR_MSGS, metric="mcc", against=None)
    on_glue = (
        row
        for row in of_models.where(measure=GLUE, against=None)
        if row.task in FORMS and row.metric == FORMS[row.task].metrics[0]
    )
    return {
        MASKED_LM: group_by_variant(of_models.where(measure=MASKED_LM, metric="nll")),
        PAIRS: group_by_variant(of_models.where(measure=PAIRS, task=ALL, metric="accuracy")),
        "control tasks": _average_tasks(mixed.where(task=CONTROLS)),
        "linguistic generalization": _average_tasks(mixed.where(task=AMBIGUOUS)),
        GLUE: _average_tasks(on_glue),
        "linguistic attribution": group_by_variant(
            of_models.where(measure=ATTRIBUTION, metric="preference", against=None)
        ),
    }


def group_by_variant(rows: Iterable[Score]) -> dict[str, dict[int, float]]:
    values: dict[str, dict[int, float]] = {}
    for row in rows:
        if _is_model(row):
            values.setdefault(str(row.variant), {})[int(row.seed or 0)] = row.value
    return values


def _is_model(row: Score) -> bool:
    return row.variant is not None and row.seed is not None and row.tuning_seed is None and row.plan is None


def _average_tasks(rows: Iterable[Score]) -> Values:
    own: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        own.setdefault(str(row.variant), {}).setdefault(int(row.seed or 0), []).append(row.value)
    return {variant: {seed: float(np.mean(values)) for seed, values in of.items()} for variant, of in own.items()}


def _compare_with(other: str, task: str, terms: str, values: Values, variants: Sequence[str]) -> Iterator[Score]:
    seeds = set(values.get(other, {}))
    gaps = {
        variant: seed_difference(values[variant], values[other])
        for variant in variants
        if len(seeds & set(values.get(variant, {}))) > 1
    }
    columns: dict[str, Any] = {"task": task, "against": other, "unit": terms}
    return _correct(
        {variant: _make_row(STUDY, "difference", gap, variant=variant, **columns) for variant, gap in gaps.items()}
    )


def contrast_biases(rows: Iterable[Score]) -> list[Score]:
    """Return the slope of each result over the initial biases (`find_bias`) of at least three variants."""
    slopes: dict[str, Score] = {}
    for question, values in collect_answers(rows).items():
        bias_by_variant = {variant: bias for variant in values if (bias := find_bias(variant)) is not None}
        biases = dict(sorted(bias_by_variant.items(), key=lambda item: item[1]))
        seeds = sorted(set.intersection(*(set(values[variant]) for variant in biases))) if biases else []
        if len(biases) >= MIN_BIASES and seeds:
            table = np.array([[values[variant][seed] for variant in biases] for seed in seeds])
            slope = _fit_slope(np.array(list(biases.values())), table)
            slopes[question] = _make_row(INITIAL_BIAS, "slope", slope, task=question)
    return list(_correct(slopes))


def contrast_shares(rows: Iterable[Score]) -> list[Score]:
    """Return the gains over the backbone for each fraction of the text; none if all models saw all of it."""
    rows = list(rows)
    results: list[Score] = []
    for task, metric in ON_SHARES.items():
        values = group_by_variant(Rows(rows).where(measure=task, task=ALL, metric=metric))
        of_shares: dict[float, dict[str, Mapping[int, float]]] = {}
        for variant, own in values.items():
            base, share = find_share(variant) or (variant, 1.0)
            of_shares.setdefault(share, {})[base] = own
        pairs = {
            share: (of[LAYER_WEIGHTS], of[BACKBONE])
            for share, of in sorted(of_shares.items())
            if {LAYER_WEIGHTS, BACKBONE} <= set(of)
        }
        if set(pairs) - {1.0}:
            results += _contrast_on_shares(task, pairs)
    return results


def _contrast_on_shares(
    task: str, pairs: Mapping[float, tuple[Mapping[int, float], Mapping[int, float]]]
) -> Iterator[Score]:
    columns: dict[str, Any] = {"task": task, "variant": LAYER_WEIGHTS, "against": BACKBONE}
    gaps = {share: seed_difference(own, base) for share, (own, base) in pairs.items() if set(own) & set(base)}
    yield from _correct(
        {share: _make_row(DATA_SHARE, "difference", gap, share=share, **columns) for share, gap in gaps.items()}
    )
    seeds = sorted(set.intersection(*(set(each) for share in gaps for each in pairs[share]))) if gaps else []
    if len(gaps) > 1 and seeds:
        table = np.array([[pairs[share][0][seed] - pairs[share][1][seed] for share in gaps] for seed in seeds])
        halving = _fit_slope(-np.log2(np.array(list(gaps))), table)
        yield replace(_make_row(DATA_SHARE, "by_halving", halving, **columns), p_adjusted=halving.p)


def _make_row(measure: str, metric: str, gap: SeedDifference, **columns: Any) -> Score:
    return Score(measure, metric, gap.value, gap.low, gap.high, gap.p, mde=gap.mde, **columns)


def _correct(rows: Mapping[Key, Score]) -> Iterator[Score]:
    adjusted = holm_by_key({key: row.p for key, row in rows.items()})
    for key, row in rows.items():
        yield replace(row, p_adjusted=adjusted.get(key))


def _fit_slope(amounts: Numbers, table: Numbers) -> SeedDifference:
    centered = amounts - amounts.mean()
    slopes = table @ centered / np.square(centered).sum()
    return seed_difference(dict(enumerate(slopes.tolist())), dict.fromkeys(range(len(slopes)), 0.0))
