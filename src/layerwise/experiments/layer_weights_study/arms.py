"""Are layer weights worth it? The arms of a study that could say no, and the differences that answer.

Every arm is the same architecture, trained on the same segments under the same masks, and differs from the backbone
`ltg` in one thing:

    elc             learned softmax weights that prefer the previous layer at first, as in the paper
    zero            the same, all equal at first
    elc-identity    the same, the previous layer nearly alone at first
    elc-frozen      the first weights of `elc`, never trained: what the mixture is worth without learning
    denseformer     weights of any sign beside a residual stream, the plain model at first
    elc-bias-2      `elc` whose scalar of the previous layer begins at 2, one arm for each bias that is asked for
    elc-seconds     `elc` with as many steps as fit into the backbone's time

All of them are asked minimal pairs and fine-tuned; what `elc-frozen` holds in pretraining it holds in fine-tuning too.
Two more ways to fine-tune begin from the models of `ltg` and `elc`:

    ltg-rewired     weights in fine-tuning only: denseformer's, which change nothing before they are taught
    elc-kept        weights in pretraining only: fine-tuned as they came out

so that `ltg` has no weights at all and `elc` has them in both. Every arm is compared with `ltg`, and `elc` also against
`elc-frozen` and `elc-kept`: what is it to learn the weights? Differences are paired by seed
(`layerwise.measure.stats.seeds`), and the p of a question are corrected over its arms (Holm).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from layerwise.data.suites.classification import Task
from layerwise.data.suites.generated_msgs import Sizes, mixed_signals
from layerwise.data.suites.glue import GLUE
from layerwise.data.suites.glue_forms import FORMS
from layerwise.measure.cost.overhead import Overhead, ratio
from layerwise.measure.stats.seeds import SeedDifference, seed_difference
from layerwise.measure.stats.statistics import holm_by_key
from layerwise.results.rows import Score
from layerwise.results.vocabulary import (
    ALL,
    AMBIGUOUS,
    ATTRIBUTION,
    BACKBONE,
    CONTROLS,
    LAYER_WEIGHTS,
    MASKED_LM,
    OUR_MSGS,
    PAIRS,
    SECONDS,
    STUDY,
    TOKENS,
)
from layerwise.train.pretrain.recipe import PretrainingRecipe, pretraining_recipe

AT_EQUAL_SECONDS = "elc-seconds"
"""The arm of `LAYER_WEIGHTS` that is given the backbone's time instead of its steps."""

REWIRED, KEPT = "ltg-rewired", "elc-kept"
FROZEN = "elc-frozen"
UNLEARNED = (FROZEN, KEPT)
"""The arms with the weights of `LAYER_WEIGHTS` that do not learn them: in pretraining, and in fine-tuning."""

_SHARE = re.compile(r"(.+)-share-(\d+(?:\.\d+)?)")

PAIRS_EACH = 15
"""Minimal pairs of each paradigm: their interval is over seeds, so that many pairs say little more."""

SEGMENTS = 512
"""Held-out segments that a model is evaluated on, spread over all documents, for the same reason."""

SIZES = Sizes(train=480, selection=120, test=300)
TASKS = ("control main_verb", "ambiguous main_verb_relative_position")
"""One task that tests whether a feature is represented, and one that tests which of two is preferred."""

ATTRIBUTED = TASKS[1]
"""The task whose decisions are attributed to words: both of its features are carried by words of their own."""


BIASED = f"{LAYER_WEIGHTS}-bias-"
"""What the names of arms of a grid of biases begin with; the bias follows."""

BIASES = {"zero": 0.0, LAYER_WEIGHTS: 1.0}
"""The arms of every study whose scalar of the previous layer begins as said; the other scalars begin at 0."""


def bias_arms(biases: Sequence[float]) -> dict[str, float]:
    """The arms of a grid of biases, and the bias of each, in its order; those of every study keep their names.

    >>> bias_arms((0, 0.5, 1))
    {'zero': 0.0, 'elc-bias-0.5': 0.5, 'elc': 1.0}
    """
    named = {bias: arm for arm, bias in BIASES.items()}
    return {named.get(bias, f"{BIASED}{bias:g}"): float(bias) for bias in sorted(biases)}


def arms(size: str, biases: Sequence[float] = (), **changes: Any) -> tuple[PretrainingRecipe, ...]:
    """The recipes that are trained for the same number of steps, the backbone first, those of a grid of biases last."""
    return (
        pretraining_recipe(size, BACKBONE, **changes),
        pretraining_recipe(size, LAYER_WEIGHTS, **changes),
        pretraining_recipe(size, "zero", **changes),
        pretraining_recipe(size, LAYER_WEIGHTS, arm="elc-identity", initialisation="identity", **changes),
        pretraining_recipe(size, LAYER_WEIGHTS, arm=FROZEN, frozen_layer_weights=True, **changes),
        pretraining_recipe(size, "denseformer", **changes),
        *(
            pretraining_recipe(size, LAYER_WEIGHTS, arm=arm, initialisation=f"{bias:g}", **changes)
            for arm, bias in bias_arms(biases).items()
            if arm not in BIASES
        ),
    )


def share_arm(arm: str, share: float) -> str:
    """The name of an arm that is trained on a share of the text.

    >>> share_arm("elc", 1 / 8), share_arm("elc", 1.0)
    ('elc-share-0.125', 'elc')
    """
    return arm if share == 1 else f"{arm}-share-{share:.6g}"


def share_of(arm: str) -> tuple[str, float] | None:
    """The arm and the share in the name of an arm that is trained on a share of the text.

    >>> share_of("elc-share-0.125"), share_of("elc")
    (('elc', 0.125), None)
    """
    match = _SHARE.fullmatch(arm)
    return None if match is None else (match[1], float(match[2]))


def at_equal_seconds(recipe: PretrainingRecipe, slower: float) -> PretrainingRecipe:
    """The recipe with as many steps as fit into the time of a backbone whose step is faster by the factor `slower`."""
    return replace(recipe, arm=AT_EQUAL_SECONDS, steps=max(1, round(recipe.steps / slower)))


def tasks(seed: int) -> tuple[Task, ...]:
    """What models are fine-tuned on: mixed signals of our own, controls and ambiguous ones."""
    return tuple(mixed_signals(TASKS, SIZES, seed=seed))


def batch(recipe: PretrainingRecipe, vocabulary: int) -> dict[str, torch.Tensor]:
    """A batch of the recipe's first phase, of random tokens, a sixth of them masked: what steps are timed on."""
    shape = (recipe.batch_size // recipe.gradient_accumulation_steps, recipe.lengths[0])
    ids = torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(0))
    wanted = torch.arange(shape[1]).expand(shape) % 6 == 0
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.masked_fill(~wanted, -100)}


def cost_rows(overheads: Mapping[str, Overhead]) -> list[Score]:
    """What every arm costs against the backbone: a step, a pass, and the bytes a step keeps, as ratios."""
    base = overheads[BACKBONE]
    rows = []
    for arm, own in overheads.items():
        if arm == BACKBONE:
            continue
        for task, seconds, against in (
            ("training step", own.step_seconds, base.step_seconds),
            ("forward pass", own.pass_seconds, base.pass_seconds),
        ):
            timed = ratio(seconds, against)
            rows.append(_cost(arm, task, timed.value, timed.low, timed.high))
        rows.append(_cost(arm, "memory of a step", own.kept_bytes / base.kept_bytes))
    return rows


def _cost(arm: str, task: str, value: float, low: float | None = None, high: float | None = None) -> Score:
    return Score(STUDY, "ratio", value, low, high, task=task, arm=arm, against=BACKBONE)


def difference_rows(rows: Iterable[Score]) -> list[Score]:
    """The differences between arms in held-out loss (nats), accuracy on pairs, and correlation on tasks.

    `rows` are those of single models. The p-values of a metric are corrected over the arms that have it.
    """
    results = []
    for task, values in answers(rows).items():
        for terms in (TOKENS, SECONDS):
            arms = [arm for arm in values if arm != BACKBONE and (arm == AT_EQUAL_SECONDS) == (terms == SECONDS)]
            results += _against(BACKBONE, task, terms, values, arms)
        for other in UNLEARNED:
            results += _against(other, task, TOKENS, values, [LAYER_WEIGHTS])
    return results


def answers(rows: Iterable[Score]) -> dict[str, dict[str, dict[int, float]]]:
    """What each arm answered to each question with each seed: question to arm to seed to value.

    The questions are the held-out loss, the accuracy on minimal pairs, Matthews' correlation on the tasks that test
    one feature and on those that test which of two is preferred, the mean score over tasks of GLUE, and how
    much more of a decision on mixed signals comes from the words of the linguistic feature than from those of the
    surface. Arms of a share of the text are left out: they are compared with each other
    (`layerwise.experiments.layer_weights_study.shares`).
    """
    rows = [row for row in rows if row.arm is not None and share_of(row.arm) is None]
    return {
        MASKED_LM: by_arm(row for row in rows if (row.measure, row.metric) == (MASKED_LM, "nll")),
        PAIRS: by_arm(row for row in rows if (row.measure, row.task, row.metric) == (PAIRS, ALL, "accuracy")),
        "control tasks": by_arm(_fine_tuned(rows, CONTROLS)),
        "linguistic generalisation": by_arm(_fine_tuned(rows, AMBIGUOUS)),
        GLUE: by_arm(_on_glue(rows)),
        "linguistic attribution": by_arm(
            row for row in rows if (row.measure, row.metric, row.against) == (ATTRIBUTION, "preference", None)
        ),
    }


def _against(
    other: str, task: str, terms: str, values: Mapping[str, Mapping[int, float]], arms: Sequence[str]
) -> list[Score]:
    """The rows of the arms against another, seed by seed; none where they have no seed in common."""
    seeds = set(values.get(other, {}))
    differences = {arm: seed_difference(values[arm], values[other]) for arm in arms if seeds & set(values.get(arm, {}))}
    adjusted = holm_by_key({arm: each.p for arm, each in differences.items()})
    return [
        Score(
            STUDY, "difference", *_numbers(each), p_adjusted=adjusted.get(arm), mde=each.mde, task=task,
            arm=LAYER_WEIGHTS if arm == AT_EQUAL_SECONDS else arm, against=other, condition=terms,
        )
        for arm, each in differences.items()
    ]  # fmt: skip


def _numbers(difference: SeedDifference) -> tuple[float, float | None, float | None, float | None]:
    return difference.value, difference.low, difference.high, difference.p


def _fine_tuned(rows: Iterable[Score], tasks: Collection[str]) -> list[Score]:
    """The mean of each model's correlations over these tasks, as rows of one task."""
    return _mean_over_tasks(
        row for row in rows if (row.measure, row.metric, row.against) == (OUR_MSGS, "mcc", None) and row.task in tasks
    )


def _on_glue(rows: Iterable[Score]) -> list[Score]:
    """The mean of each model's scores over tasks of GLUE, each task by its first metric."""
    scored = [
        row
        for row in rows
        if (row.measure, row.against) == (GLUE, None) and row.task in FORMS and row.metric == FORMS[row.task].metrics[0]
    ]
    return _mean_over_tasks(scored)


def _mean_over_tasks(rows: Iterable[Score]) -> list[Score]:
    own: dict[tuple[str | None, int | None], list[Score]] = {}
    for row in rows:
        if _is_model(row):
            own.setdefault((row.arm, row.seed), []).append(row)
    return [replace(of[0], value=float(np.mean([row.value for row in of]))) for of in own.values()]


def by_arm(rows: Iterable[Score]) -> dict[str, dict[int, float]]:
    """The value of every model in the rows, by arm and seed."""
    values: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.arm is not None and row.seed is not None and _is_model(row):
            values.setdefault(row.arm, {})[row.seed] = row.value
    return values


def _is_model(row: Score) -> bool:
    """Whether a row is of one model: neither of an arm, nor of one of a model's fine-tunings."""
    return row.seed is not None and row.other is None
