"""Shares of the text: are layer weights worth more where there is less to read?

The backbone and `elc` are trained by one recipe, for as many steps, on shares of the training documents: each share
holds the smaller ones, all are read with one vocabulary (that of the whole text, or nats per token would not compare),
and what is held out is the same for all. A smaller share is read more often.

    value         of each arm, its `amount` the share: the mean over seeds, with Student's interval
    difference    of an arm against the other on a share, paired by seed; p corrected over the shares (Holm)
    by_halving    what one halving of the text adds to the difference: a line over log2 of the share through each seed,
                  Student's over the slopes

are rows of measure `data_share`, their task the held-out loss or the minimal pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np
from transformers import PreTrainedTokenizerBase

from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import encode
from layerwise.data.text.segments import PretrainingText, digest_of
from layerwise.experiments.layer_weights_study.arms import by_arm, share_arm, share_of
from layerwise.measure.stats.seeds import SeedDifference, over_seeds, seed_difference
from layerwise.measure.stats.statistics import holm_by_key
from layerwise.results.rows import Score
from layerwise.results.vocabulary import ALL, BACKBONE, DATA_SHARE, LAYER_WEIGHTS, MASKED_LM, PAIRS
from layerwise.train.pretrain.recipe import PretrainingRecipe

ARMS = (BACKBONE, LAYER_WEIGHTS)
METRICS = {MASKED_LM: "nll", PAIRS: "accuracy"}
"""What is compared: measure and metric of the models' rows over all of the text, or of the pairs."""

Values = Mapping[str, Mapping[int, float]]


def share_recipes(recipes: Sequence[PretrainingRecipe], share: float) -> tuple[PretrainingRecipe, ...]:
    """The recipes of the backbone and of `elc` for a share of the text: they differ in their name alone."""
    return tuple(replace(each, arm=share_arm(each.arm, share)) for each in recipes if each.arm in ARMS)


def part_of(documents: Sequence[Document], share: float, seed: int) -> tuple[Document, ...]:
    """Documents with a share of the words, in their order; what a smaller share holds, a larger one holds too.

    >>> four = [Document(name, "one two three four") for name in "abcd"]
    >>> len(part_of(four, 0.5, 0)), set(part_of(four, 0.25, 0)) <= set(part_of(four, 0.5, 0))
    (2, True)
    """
    words = [len(each.text.split()) for each in documents]
    order = list(range(len(documents)))
    Random(f"{seed}/shares").shuffle(order)
    wanted, taken = share * sum(words), 0
    kept = set()
    for index in order:
        if taken >= wanted - 1e-9 * wanted:
            break
        kept.add(index)
        taken += words[index]
    return tuple(each for index, each in enumerate(documents) if index in kept)


def shared_text(
    text: PretrainingText,
    parts: Mapping[str, Sequence[Document]],
    tokenizer: PreTrainedTokenizerBase,
    share: float,
    seed: int,
) -> PretrainingText:
    """The text with a share of its training documents; what is held out stays."""
    train = part_of(parts["train"], share, seed)
    return replace(
        text, name=f"{text.name}, {share:g} of it", digest=digest_of({**parts, "train": train}),
        train=encode(tokenizer, train),
    )  # fmt: skip


def share_rows(rows: Iterable[Score]) -> list[Score]:
    """The rows of the shares, of the rows of the models; none where no share of the text was trained on."""
    rows = list(rows)
    results: list[Score] = []
    for task, metric in METRICS.items():
        values = by_arm(row for row in rows if (row.measure, row.task, row.metric) == (task, ALL, metric))
        shares = sorted({of[1] for arm in values if (of := share_of(arm)) is not None})
        if shares:
            results += _of_task(task, values, [*shares, *([1.0] if set(ARMS) <= set(values) else [])])
    return results


def _of_task(task: str, values: Values, shares: Sequence[float]) -> Iterator[Score]:
    for arm in ARMS:
        for share in shares:
            of = list(values.get(share_arm(arm, share), {}).values())
            if of:
                low, high = over_seeds(of)
                yield Score(DATA_SHARE, "value", float(np.mean(of)), low, high, task=task, arm=arm, amount=share)
    backbone, timed = ({share: values.get(share_arm(arm, share), {}) for share in shares} for arm in ARMS)
    both = [share for share in shares if set(backbone[share]) & set(timed[share])]
    gaps = {share: seed_difference(timed[share], backbone[share]) for share in both}
    adjusted = holm_by_key({share: gap.p for share, gap in gaps.items()})
    for share, gap in gaps.items():
        yield replace(_difference_row("difference", task, gap), p_adjusted=adjusted.get(share), amount=share)
    if len(both) > 1:
        yield from _by_halving(task, backbone, timed, both)


def _difference_row(metric: str, task: str, gap: SeedDifference) -> Score:
    bounds = (gap.low, gap.high, gap.p)
    return Score(
        DATA_SHARE, metric, gap.value, *bounds, mde=gap.mde, task=task, arm=LAYER_WEIGHTS, against=BACKBONE
    )  # fmt: skip


def _by_halving(
    task: str,
    backbone: Mapping[float, Mapping[int, float]],
    timed: Mapping[float, Mapping[int, float]],
    shares: Sequence[float],
) -> Iterator[Score]:
    """What a halving of the text adds to the difference, by a line of least squares through each seed."""
    seeds = sorted(set.intersection(*(set(of[share]) for of in (backbone, timed) for share in shares)))
    if not seeds:
        return
    halvings = -np.log2(np.array(shares))
    centred = halvings - halvings.mean()
    gaps = np.array([[timed[share][seed] - backbone[share][seed] for share in shares] for seed in seeds])
    slopes = gaps @ centred / np.square(centred).sum()
    slope = seed_difference(dict(enumerate(slopes.tolist())), dict.fromkeys(range(len(slopes)), 0.0))
    yield replace(_difference_row("by_halving", task, slope), p_adjusted=slope.p)
