"""Shares of the text: are layer weights worth more where there is less to read?

The backbone and `elc` are trained by one recipe, for as many steps, on shares of the training documents: each share
holds the smaller ones, all are read with one vocabulary (that of the whole text, or nats per token would not compare),
and what is held out is the same for all. A smaller share is read more often.

    data_share  ARM        share 0.125  nll, pairs    the mean over seeds, with Student's interval
    data_share  elc - ltg  share 0.125  nll, pairs    the difference, paired by seed; p corrected over the shares (Holm)
    data_share  elc - ltg  all          nll, pairs    what one halving of the text adds to the difference: a line over
                                                      log2 of the share through each seed, Student's over the slopes
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
from layerwise.experiments.layer_weights_study.arms import BACKBONE, TIMED, by_arm, share_arm, share_of
from layerwise.measure.stats.seeds import over_seeds, seed_difference
from layerwise.measure.stats.statistics import holm_by_key
from layerwise.results.rows import Score
from layerwise.train.pretrain.recipe import PretrainingRecipe

DATA_SHARE = "data_share"
ARMS = (BACKBONE, TIMED)
METRICS = {"nll": ("masked_lm", "test", "nll"), "pairs": ("pairs", "all", "accuracy")}
"""What is compared: measure, task and metric of the models' rows."""

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
    for metric, wanted in METRICS.items():
        values = by_arm(row for row in rows if (row.measure, row.task, row.metric) == wanted)
        shares = sorted({of[1] for arm in values if (of := share_of(arm)) is not None})
        if shares:
            results += _of_metric(metric, values, [*shares, *([1.0] if set(ARMS) <= set(values) else [])])
    return results


def _of_metric(metric: str, values: Values, shares: Sequence[float]) -> Iterator[Score]:
    for arm in ARMS:
        for share in shares:
            of = list(values.get(share_arm(arm, share), {}).values())
            if of:
                low, high = over_seeds(of)
                yield Score(DATA_SHARE, arm, f"share {share:g}", metric, float(np.mean(of)), low, high)
    backbone, timed = ({share: values.get(share_arm(arm, share), {}) for share in shares} for arm in ARMS)
    both = [share for share in shares if set(backbone[share]) & set(timed[share])]
    gaps = {share: seed_difference(timed[share], backbone[share]) for share in both}
    adjusted = holm_by_key({share: gap.p for share, gap in gaps.items()})
    subject = f"{TIMED} - {BACKBONE}"
    for share, gap in gaps.items():
        yield Score(
            DATA_SHARE, subject, f"share {share:g}", metric, gap.value, gap.low, gap.high, gap.p, adjusted.get(share),
            gap.mde,
        )  # fmt: skip
    if len(both) > 1:
        yield from _by_halving(metric, subject, backbone, timed, both)


def _by_halving(
    metric: str,
    subject: str,
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
    yield Score(
        DATA_SHARE, subject, "all", metric, slope.value, slope.low, slope.high, slope.p, slope.p, slope.mde
    )  # fmt: skip
