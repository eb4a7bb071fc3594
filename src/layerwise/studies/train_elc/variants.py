"""Variants by name: `BASE[-START][-frozen][-share-X]`, such as elc-bias-2, elc-frozen or ltg-share-0.5.

elc-identity, elc-bias-2   other initial layer weights: by name, or the initial scalar of the previous layer
elc-frozen                 the initial layer weights, without training
elc-share-0.5              trained on half of the training text; a larger share contains a smaller one
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from transformers import PreTrainedTokenizerBase

from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import encode_documents
from layerwise.data.text.segments import PretrainingText, hash_parts
from layerwise.errors import TrainError, near_matches
from layerwise.models.elc.configuration import INITIALISATIONS, VARIANTS
from layerwise.train.pretrain.recipe import PretrainingRecipe, pretraining_recipe

_NAME = re.compile(
    rf"(?P<base>{'|'.join(sorted(VARIANTS, key=len, reverse=True))})"
    rf"(-(?P<start>{'|'.join(INITIALISATIONS)})|-bias-(?P<bias>-?\d+(\.\d+)?))?"
    r"(?P<frozen>-frozen)?"
    r"(-share-(?P<share>0\.\d+))?"
)


def make_recipe(size: str, name: str, **changes: Any) -> PretrainingRecipe:
    """Return the recipe of the variant `name`; `changes` replace settings.

    Raises:
        TrainError: If the variant is unknown.

    Example:
    >>> recipe = make_recipe("tiny", "elc-bias-2-frozen")
    >>> recipe.arm, recipe.variant, recipe.initialisation, recipe.frozen_layer_weights
    ('elc-bias-2-frozen', 'elc', '2', True)
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise TrainError(
            f"unknown variant {name!r}; {near_matches(name, VARIANTS)}, with optional suffixes -identity, -zero or "
            "-bias-2, -frozen and -share-0.5"
        )
    start = match["start"] or match["bias"]
    is_frozen = match["frozen"] is not None
    if (start or is_frozen) and not VARIANTS[match["base"]].mixes:
        raise TrainError(f"{name!r} requires a variant with layer weights, such as elc, got {match['base']}.")
    if is_frozen:
        changes["frozen_layer_weights"] = True
    return pretraining_recipe(size, match["base"], arm=name, initialisation=start, **changes)


def draw_share(documents: Sequence[Document], share: float, seed: int) -> tuple[Document, ...]:
    """Draw documents with a share of the words, in order; a larger share contains a smaller one.

    >>> four = [Document(name, "one two three four") for name in "abcd"]
    >>> len(draw_share(four, 0.5, 0)), set(draw_share(four, 0.25, 0)) <= set(draw_share(four, 0.5, 0))
    (2, True)
    """
    words = [len(each.text.split()) for each in documents]
    order = list(range(len(documents)))
    Random(f"{seed}/shares").shuffle(order)
    goal, count = share * sum(words), 0
    drawn = set()
    for index in order:
        if count >= goal - 1e-9 * goal:
            break
        drawn.add(index)
        count += words[index]
    return tuple(each for index, each in enumerate(documents) if index in drawn)


def share_text(
    text: PretrainingText,
    parts: Mapping[str, Sequence[Document]],
    tokenizer: PreTrainedTokenizerBase,
    share: float,
    seed: int,
) -> PretrainingText:
    """Return the text with a share of its training documents, and the same held-out text."""
    train = draw_share(parts["train"], share, seed)
    return replace(
        text,
        name=f"{text.name}, {share:g} of it",
        digest=hash_parts({**parts, "train": train}),
        train=encode_documents(tokenizer, train),
    )
