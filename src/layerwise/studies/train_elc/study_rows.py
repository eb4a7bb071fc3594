"""What a study of layer weights answers, as rows made of those of its models.

    study              `ratio`, what an arm costs against the backbone; `difference` of two arms, paired by seed
    initial_bias       over the arms of a grid of biases: `value` of each, its `amount` the bias; `slope`, the change
                       per unit of bias; `differ`, F of the arms within seeds, since a best bias in the middle has none
    data_share         on shares of the text: `value` of each arm, its `amount` the share; `difference` of an arm from
                       the other on a share; `by_halving`, what one halving of the text adds to it
    convergence        steps and seconds to one validation loss of pretraining
    tuning_convergence steps and seconds to one selection score of fine-tuning

The task of a row is its question. A slope is that of a line of least squares through each seed, with Student's interval
and p over the seeds' slopes. The p of a metric are corrected over what has it: arms, questions or shares (Holm).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from layerwise.data.suites.glue import FORMS, GLUE
from layerwise.measure.cost.overhead import Overhead
from layerwise.measure.stats.estimate import median_interval
from layerwise.measure.stats.seeds import SeedDifference, over_seeds, seed_difference
from layerwise.measure.stats.statistics import Numbers, holm_by_key
from layerwise.results import Rows, Score
from layerwise.results import vocabulary as vocab
from layerwise.results.selection import PRESENT
from layerwise.studies.train_elc.study_arms import AT_EQUAL_SECONDS, COMPARED, UNLEARNED, share_arm, share_of
from layerwise.train.cost.convergence import ValidationCurve, convergence_rows, score_curve, tuning_convergence_rows

FEWEST_BIASES = 3
"""Biases that a slope or a comparison of all needs; two are a difference of arms, which the study has."""

ON_SHARES = {vocab.MASKED_LM: "nll", vocab.PAIRS: "accuracy"}
"""What is compared on shares of the text: measure and metric of the models' rows over all of it, or of the pairs."""

Key = TypeVar("Key", bound=Hashable)
Values = Mapping[str, Mapping[int, float]]


def cost_rows(overheads: Mapping[str, Overhead]) -> list[Score]:
    base = overheads[vocab.BACKBONE]
    rows = []
    for arm, own in overheads.items():
        if arm == vocab.BACKBONE:
            continue
        of: dict[str, Any] = {"arm": arm, "against": vocab.BACKBONE}
        for task, seconds, against in (
            ("training step", own.step_seconds, base.step_seconds),
            ("forward pass", own.pass_seconds, base.pass_seconds),
        ):
            ratios = (seconds / against).tolist()
            rows.append(Score(vocab.STUDY, "ratio", median(ratios), *median_interval(ratios), task=task, **of))
        rows.append(Score(vocab.STUDY, "ratio", own.kept_bytes / base.kept_bytes, task="memory of a step", **of))
    return rows


def difference_rows(rows: Iterable[Score]) -> list[Score]:
    """Return the differences between arms, from rows of single models, in held-out loss (nats) and scores."""
    results = []
    for task, values in answers(rows).items():
        for terms in (vocab.TOKENS, vocab.SECONDS):
            arms = [
                arm for arm in values if arm != vocab.BACKBONE and (arm == AT_EQUAL_SECONDS) == (terms == vocab.SECONDS)
            ]
            results += _against(vocab.BACKBONE, task, terms, values, arms)
        for other in UNLEARNED:
            results += _against(other, task, vocab.TOKENS, values, [vocab.LAYER_WEIGHTS])
    return results


def answers(rows: Iterable[Score]) -> dict[str, Values]:
    """Return the answers of each arm by question and seed; arms of a share of the text are left out.

    The questions are held-out loss, accuracy on minimal pairs, Matthews' correlation on tasks that test one feature and
    on those with mixed signals, the mean GLUE score (first metric of each task), and the difference in attribution
    between the linguistic and the surface feature.
    """
    of_models = Rows(row for row in rows if _is_model(row) and share_of(str(row.arm)) is None)
    mixed = of_models.where(measure=vocab.OUR_MSGS, metric="mcc", against=None)
    on_glue = (
        row
        for row in of_models.where(measure=GLUE, against=None)
        if row.task in FORMS and row.metric == FORMS[row.task].metrics[0]
    )
    return {
        vocab.MASKED_LM: by_arm(of_models.where(measure=vocab.MASKED_LM, metric="nll")),
        vocab.PAIRS: by_arm(of_models.where(measure=vocab.PAIRS, task=vocab.ALL, metric="accuracy")),
        "control tasks": _mean_over_tasks(mixed.where(task=vocab.CONTROLS)),
        "linguistic generalisation": _mean_over_tasks(mixed.where(task=vocab.AMBIGUOUS)),
        GLUE: _mean_over_tasks(on_glue),
        "linguistic attribution": by_arm(of_models.where(measure=vocab.ATTRIBUTION, metric="preference", against=None)),
    }


def by_arm(rows: Iterable[Score]) -> dict[str, dict[int, float]]:
    values: dict[str, dict[int, float]] = {}
    for row in rows:
        if _is_model(row):
            values.setdefault(str(row.arm), {})[int(row.seed or 0)] = row.value
    return values


def _is_model(row: Score) -> bool:
    return row.arm is not None and row.seed is not None and row.other is None


def _mean_over_tasks(rows: Iterable[Score]) -> Values:
    own: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        own.setdefault(str(row.arm), {}).setdefault(int(row.seed or 0), []).append(row.value)
    return {arm: {seed: float(np.mean(values)) for seed, values in of.items()} for arm, of in own.items()}


def _against(other: str, task: str, terms: str, values: Values, arms: Sequence[str]) -> list[Score]:
    seeds = set(values.get(other, {}))
    gaps = {arm: seed_difference(values[arm], values[other]) for arm in arms if seeds & set(values.get(arm, {}))}
    rows = {
        arm: _row(
            vocab.STUDY,
            "difference",
            gap,
            task=task,
            arm=vocab.LAYER_WEIGHTS if arm == AT_EQUAL_SECONDS else arm,
            against=other,
            condition=terms,
        )
        for arm, gap in gaps.items()
    }
    return list(_corrected(rows))


# -- grids of biases and of shares


def bias_rows(rows: Iterable[Score], biases: Mapping[str, float]) -> list[Score]:
    """The rows of a grid of `biases` by arm, of the rows of the models; none for fewer than three biases."""
    if len(biases) < FEWEST_BIASES:
        return []
    results: list[Score] = []
    slopes: dict[str, Score] = {}
    differ: dict[str, Score] = {}
    for question, values in answers(rows).items():
        seeds = sorted(set.intersection(*(set(values.get(arm, {})) for arm in biases)))
        if not seeds:
            continue
        table = np.array([[values[arm][seed] for arm in biases] for seed in seeds])
        for at, (arm, bias) in enumerate(biases.items()):
            results.append(_mean_row(vocab.INITIAL_BIAS, table[:, at].tolist(), task=question, arm=arm, amount=bias))
        slope = _slope(np.array(list(biases.values())), table)
        slopes[question] = _row(vocab.INITIAL_BIAS, "slope", slope, task=question)
        if len(seeds) > 1:
            ratio, p = _f_of_arms(table)
            differ[question] = Score(vocab.INITIAL_BIAS, "differ", ratio, p=p, task=question)
    return [*results, *_corrected(slopes), *_corrected(differ)]


def share_rows(rows: Iterable[Score]) -> list[Score]:
    """The rows of the shares, of the rows of the models; none where no share of the text was trained on."""
    rows = list(rows)
    results: list[Score] = []
    for task, metric in ON_SHARES.items():
        values = by_arm(Rows(rows).where(measure=task, task=vocab.ALL, metric=metric))
        shares = sorted({of[1] for arm in values if (of := share_of(arm)) is not None})
        if shares:
            results += _of_shares(task, values, [*shares, *([1.0] if set(COMPARED) <= set(values) else [])])
    return results


def _of_shares(task: str, values: Values, shares: Sequence[float]) -> Iterator[Score]:
    on = {arm: {share: values.get(share_arm(arm, share), {}) for share in shares} for arm in COMPARED}
    for arm, of in on.items():
        for share, own in of.items():
            if own:
                yield _mean_row(vocab.DATA_SHARE, list(own.values()), task=task, arm=arm, amount=share)
    backbone, timed = on.values()
    both = [share for share in shares if set(backbone[share]) & set(timed[share])]
    of_task: dict[str, Any] = {"task": task, "arm": vocab.LAYER_WEIGHTS, "against": vocab.BACKBONE}
    gaps = {share: seed_difference(timed[share], backbone[share]) for share in both}
    yield from _corrected(
        {share: _row(vocab.DATA_SHARE, "difference", gap, amount=share, **of_task) for share, gap in gaps.items()}
    )
    seeds = sorted(set.intersection(*(set(of[share]) for of in (backbone, timed) for share in both))) if both else []
    if len(both) > 1 and seeds:
        table = np.array([[timed[share][seed] - backbone[share][seed] for share in both] for seed in seeds])
        halving = _slope(-np.log2(np.array(both)), table)
        yield replace(_row(vocab.DATA_SHARE, "by_halving", halving, **of_task), p_adjusted=halving.p)


def _mean_row(measure: str, values: Sequence[float], **columns: Any) -> Score:
    low, high = over_seeds(values)
    return Score(measure, "value", float(np.mean(values)), low, high, **columns)


def _row(measure: str, metric: str, gap: SeedDifference, **columns: Any) -> Score:
    return Score(measure, metric, gap.value, gap.low, gap.high, gap.p, mde=gap.mde, **columns)


def _corrected(rows: Mapping[Key, Score]) -> Iterator[Score]:
    adjusted = holm_by_key({key: row.p for key, row in rows.items()})
    for key, row in rows.items():
        yield replace(row, p_adjusted=adjusted.get(key))


def _slope(amounts: Numbers, table: Numbers) -> SeedDifference:
    centred = amounts - amounts.mean()
    slopes = table @ centred / np.square(centred).sum()
    return seed_difference(dict(enumerate(slopes.tolist())), dict.fromkeys(range(len(slopes)), 0.0))


def _f_of_arms(table: Numbers) -> tuple[float, float]:
    """Return F of the arms in `table`, (seeds, arms), each seed a block, over the residual, and its p."""
    seeds, arms = table.shape
    left = table - table.mean(axis=0) - table.mean(axis=1, keepdims=True) + table.mean()
    between = seeds * np.square(table.mean(axis=0) - table.mean()).sum() / (arms - 1)
    within = float(np.square(left).sum()) / ((arms - 1) * (seeds - 1))
    if within <= 0:
        return 0.0, 1.0
    ratio = float(between / within)
    return ratio, float(stats.f.sf(ratio, arms - 1, (arms - 1) * (seeds - 1)))


# -- convergence


def study_convergence(rows: Iterable[Score]) -> list[Score]:
    trained = Rows(rows).where(measure=vocab.TRAINING)
    seconds = {(row.arm, row.seed): row.value for row in trained.where(metric="step_seconds")}
    curves: dict[str, dict[int, ValidationCurve]] = {}
    for arm, of in trained.where(metric="validation_loss", amount=PRESENT).by("arm").items():
        if arm == AT_EQUAL_SECONDS or share_of(arm) is not None:
            continue
        for seed, noted in of.by("seed").items():
            losses = {int(row.amount or 0): row.value for row in noted}
            if steps := tuple(sorted(step for step in losses if step > 0)):
                curve = ValidationCurve(steps, tuple(losses[step] for step in steps), seconds.get((arm, seed)))
                curves.setdefault(arm, {})[seed] = curve
    return convergence_rows(curves, vocab.BACKBONE)


def study_tuning_convergence(rows: Iterable[Score]) -> list[Score]:
    """The rows of convergence of fine-tuning, from those of measure `learning_curve`; a model has one fine-tuning."""
    learned = Rows(rows).where(measure=vocab.LEARNING_CURVE)
    seconds = {(row.task, row.arm, row.seed): row.value for row in learned.where(metric="step_seconds")}
    curves: dict[str, dict[str, dict[int, ValidationCurve]]] = {}
    for task, taught in learned.where(amount=PRESENT).by("task").items():
        for arm, of in taught.by("arm").items():
            if arm != AT_EQUAL_SECONDS:
                curves.setdefault(task, {})[arm] = {
                    seed: score_curve(
                        {int(row.amount or 0): row.value for row in points}, seconds.get((task, arm, seed))
                    )
                    for seed, points in of.by("seed").items()
                }
    return tuning_convergence_rows(curves, vocab.BACKBONE)
