"""The arms of a study of layer weights, all on the same segments and masks; each differs from `ltg` in one thing.

    elc, zero, elc-identity  softmax weights that at first prefer the previous layer, are equal, or read it nearly alone
    elc-frozen               the first weights of `elc`, never trained, also not in fine-tuning
    denseformer              weights of any sign next to a residual stream, the plain model at first
    elc-bias-2, elc-seconds  `elc` with another initial scalar; `elc` with the backbone's time instead of its steps
    ltg-rewired, elc-kept    weights in fine-tuning only (denseformer's), and in pretraining only

`ltg` and `elc` also train on nested shares of the text, with the vocabulary of the whole text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from layerwise.data.suites.classification import Task
from layerwise.data.suites.generated_msgs import Sizes, mixed_signals
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import encode
from layerwise.data.text.segments import PretrainingText, digest_of
from layerwise.results.vocabulary import BACKBONE, LAYER_WEIGHTS
from layerwise.train.pretrain.recipe import PretrainingRecipe, pretraining_recipe

AT_EQUAL_SECONDS = "elc-seconds"
"""The arm of `LAYER_WEIGHTS` that is given the backbone's time instead of its steps."""

REWIRED, KEPT = "ltg-rewired", "elc-kept"
FROZEN = "elc-frozen"
UNLEARNED = (FROZEN, KEPT)
"""The arms with the weights of `LAYER_WEIGHTS` that do not learn them: in pretraining, and in fine-tuning."""

COMPARED = (BACKBONE, LAYER_WEIGHTS)
"""The arms that are trained on shares of the text too."""

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
    return replace(recipe, arm=AT_EQUAL_SECONDS, steps=max(1, round(recipe.steps / slower)))


def tasks() -> tuple[Task, ...]:
    return tuple(mixed_signals(TASKS, SIZES))


def batch(recipe: PretrainingRecipe, vocabulary: int) -> dict[str, torch.Tensor]:
    shape = (recipe.batch_size // recipe.gradient_accumulation_steps, recipe.lengths[0])
    ids = torch.randint(0, vocabulary, shape, generator=torch.Generator().manual_seed(0), device="cpu")
    wanted = torch.arange(shape[1], device="cpu").expand(shape) % 6 == 0
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.masked_fill(~wanted, -100)}


def share_recipes(recipes: Sequence[PretrainingRecipe], share: float) -> tuple[PretrainingRecipe, ...]:
    return tuple(replace(each, arm=share_arm(each.arm, share)) for each in recipes if each.arm in COMPARED)


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
        text,
        name=f"{text.name}, {share:g} of it",
        digest=digest_of({**parts, "train": train}),
        train=encode(tokenizer, train),
    )
