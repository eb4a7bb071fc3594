"""The grid of initial biases: does it matter with which weight of the previous layer the layers begin to learn?

The scalar of the previous layer begins at a bias b and the others at 0, so that the previous layer has the weight
e^b / (e^b + n - 1) of n sources: all alike at 0, the paper's 1, nearly a plain stack at 4. Each question (held-out
loss, minimal pairs, control tasks, linguistic generalisation) has, over the arms of the grid,

    value    of each arm, its `amount` the bias: the mean over seeds, with Student's interval
    slope    the change per unit of bias: a line through the arms of each seed, and Student's interval and p over the
             seeds' slopes
    differ   F of the arms within seeds: a best bias in the middle has no slope

as rows of measure `initial_bias`, the task the question. The p of either kind are corrected over the questions (Holm).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from scipy import stats

from layerwise.experiments.layer_weights_study.arms import answers
from layerwise.measure.stats.seeds import over_seeds, seed_difference
from layerwise.measure.stats.statistics import Numbers, holm_by_key
from layerwise.results.rows import Score
from layerwise.results.vocabulary import INITIAL_BIAS

FEWEST = 3
"""Biases that a slope or a comparison of all needs; two are a difference of arms, which the study has."""


def bias_rows(rows: Iterable[Score], biases: Mapping[str, float]) -> list[Score]:
    """The rows of a grid of `biases` by arm, of the rows of the models; none for fewer than three biases."""
    if len(biases) < FEWEST:
        return []
    results: list[Score] = []
    tests: dict[str, list[Score]] = {"slope": [], "differ": []}
    for question, values in answers(rows).items():
        seeds = sorted(set.intersection(*(set(values.get(arm, {})) for arm in biases)))
        if not seeds:
            continue
        table = np.array([[values[arm][seed] for arm in biases] for seed in seeds])
        results += [_value(arm, bias, question, table[:, at]) for at, (arm, bias) in enumerate(biases.items())]
        tests["slope"].append(_slope(question, np.array(list(biases.values())), table))
        if len(seeds) > 1:
            tests["differ"].append(_differ(question, table))
    return [*results, *(row for kind in tests.values() for row in _corrected(kind))]


def _value(arm: str, bias: float, question: str, values: Numbers) -> Score:
    low, high = over_seeds(values.tolist())
    return Score(INITIAL_BIAS, "value", float(values.mean()), low, high, task=question, arm=arm, amount=bias)


def _slope(question: str, biases: Numbers, table: Numbers) -> Score:
    """`table` is (seeds, biases); a line of least squares through each seed."""
    centred = biases - biases.mean()
    slopes = table @ centred / np.square(centred).sum()
    slope = seed_difference(dict(enumerate(slopes.tolist())), dict.fromkeys(range(len(slopes)), 0.0))
    return Score(
        INITIAL_BIAS, "slope", slope.value, slope.low, slope.high, slope.p, mde=slope.mde, task=question
    )  # fmt: skip


def _differ(question: str, table: Numbers) -> Score:
    """Whether the arms differ, each seed a block of its own: F of arms over what is left of arms and seeds."""
    seeds, arms = table.shape
    left = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    between = seeds * np.square(table.mean(axis=0) - table.mean()).sum() / (arms - 1)
    within = float(np.square(left).sum()) / ((arms - 1) * (seeds - 1))
    ratio = float(between / within) if within > 0 else 0.0
    p = float(stats.f.sf(ratio, arms - 1, (arms - 1) * (seeds - 1))) if within > 0 else 1.0
    return Score(INITIAL_BIAS, "differ", ratio, p=p, task=question)


def _corrected(rows: list[Score]) -> list[Score]:
    adjusted = holm_by_key({row.task: row.p for row in rows})
    return [replace(row, p_adjusted=adjusted.get(row.task)) for row in rows]
