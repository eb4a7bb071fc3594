"""Training, validation and test splits.

Validation and test examples are disjoint, since the loss of a checkpoint on the examples that selected it is biased. An
image example is `{"pixel_values": float32 (channels, height, width), "labels": int64 ()}`. A text example is
`{"input_ids": int64 (seq,), "labels": int64 (seq,)}`, where the label of a token that is not scored is `IGNORED`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import chain, islice, zip_longest
from random import Random
from typing import TypeVar

import torch
from torch import Tensor
from torch.utils.data import Dataset

from layerwise.data.batches import pad_rows
from layerwise.errors import DataError

_Label = TypeVar("_Label", bound=Hashable)

SPLITS = ("train", "validation", "test")

Example = dict[str, Tensor]
"""Model arguments for one image or text window."""


class Examples(Dataset[Example]):
    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Example:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """Three disjoint sets of examples.

    `digest` is a SHA-256 of all examples with their labels and splits, before augmentation. `classes` names the labels
    in order (empty for text). `skipped` names unreadable images, and `copies` names images that were removed because a
    later split has the same image. Texts are padded with `pad_id`.
    """

    name: str
    digest: str
    train: Examples
    validation: Examples
    test: Examples
    classes: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    copies: tuple[str, ...] = ()
    pad_id: int = 0
    origin: str = ""
    selects_on_reported: bool = False

    @property
    def chance(self) -> float:
        labels = getattr(self.test, "labels", None)
        if labels is None:
            labels = [self.test[index]["labels"] for index in range(len(self.test))]
        return max(Counter(int(label) for label in labels).values()) / len(labels)

    def collate(self, examples: Sequence[Example]) -> Example:
        """Collate examples to model arguments: images to (batch, channels, height, width), and texts with padding."""
        if "input_ids" in examples[0]:
            return pad_rows(examples, self.pad_id)
        return {key: torch.stack([example[key] for example in examples]) for key in examples[0]}


def split_stratified(labels: Sequence[Hashable], shares: Sequence[float], seed: int) -> tuple[tuple[int, ...], ...]:
    """Split the indices of `labels` into one part per share, stratified by label.

    Of n indices with one label, part k > 0 gets max(1, floor(shares[k] * n)), and the first part gets the rest. The
    draw of a label depends only on `seed` and the label, so adding a class does not change how others are split.
    Indices are ascending within a part. Raises `DataError` if a label has fewer indices than there are parts.

    >>> split_stratified("aaaaabbbbb", (0.6, 0.2, 0.2), seed=0)
    ((0, 2, 4, 6, 7, 8), (3, 9), (1, 5))
    """
    parts: list[list[int]] = [[] for _ in shares]
    for label, positions in _positions_of(labels).items():
        later = [max(1, int(share * len(positions))) for share in shares[1:]]
        sizes = [len(positions) - sum(later), *later]
        if sizes[0] < 1:
            raise DataError(
                f"{label!r} must have at least {len(shares)} examples to be split into {len(shares)} sets, got "
                f"{len(positions)}. Add examples, or pass separate training, validation and test sets."
            )
        drawn = iter(Random(f"{seed}/{label}").sample(positions, len(positions)))
        for part, size in zip(parts, sizes, strict=True):
            part.extend(next(drawn) for _ in range(size))
    return tuple(tuple(sorted(part)) for part in parts)


def limit_stratified(labels: Sequence[int], limit: int | None, seed: int) -> tuple[int, ...]:
    """Draw at most `limit` indices of `labels`, balanced over labels and in ascending order.

    Raises `DataError` if `limit` is below the number of distinct labels.

    >>> limit_stratified([0, 0, 0, 0, 1], 3, seed=0)
    (1, 2, 4)
    """
    if limit is None or limit >= len(labels):
        return tuple(range(len(labels)))
    positions_of = _positions_of(labels)
    if limit < len(positions_of):
        raise DataError(f"The limit must be at least {len(positions_of)} images, one per class, got {limit}.")
    drawn = (
        Random(f"{seed}/{label}").sample(positions, len(positions)) for label, positions in sorted(positions_of.items())
    )
    rounds = (position for position in chain.from_iterable(zip_longest(*drawn)) if position is not None)
    return tuple(sorted(islice(rounds, limit)))


def order_evenly(labels: Sequence[Hashable], seed: int) -> tuple[int, ...]:
    """Shuffle the indices of `labels` so that every label is spread evenly.

    Of n indices with one label, the k-th is at the fraction (k + u) / n of the order, where u is uniform in [0, 1) and
    drawn once per label. Any part of the order therefore has about the overall frequencies of labels.

    >>> order_evenly("aaaabbbbcc", seed=0)
    (1, 5, 8, 0, 4, 3, 7, 9, 2, 6)
    """
    ordered = []
    for label, positions in _positions_of(labels).items():
        chance = Random(f"{seed}/order/{label}")
        offset = chance.random()
        drawn = chance.sample(positions, len(positions))
        ordered += [((rank + offset) / len(drawn), position) for rank, position in enumerate(drawn)]
    return tuple(position for _, position in sorted(ordered))


def _positions_of(labels: Sequence[_Label]) -> dict[_Label, list[int]]:
    positions: dict[_Label, list[int]] = defaultdict(list)
    for position, label in enumerate(labels):
        positions[label].append(position)
    return positions


def sample(examples: Examples, count: int, seed: int) -> tuple[int, ...]:
    """Draw the indices of at most `count` examples, in ascending order. Images are balanced over classes."""
    if count >= len(examples):
        return tuple(range(len(examples)))
    example_labels = getattr(examples, "labels", None)
    if example_labels is None:
        return tuple(sorted(Random(f"{seed}/sample").sample(range(len(examples)), count)))
    labels = [int(label) for label in example_labels]
    classes = sorted(set(labels))
    if count >= len(classes):
        return limit_stratified(labels, count, seed)
    drawn = set(Random(f"{seed}/sample").sample(classes, count))
    positions = [position for position, label in enumerate(labels) if label in drawn]
    return tuple(
        positions[each] for each in limit_stratified([labels[position] for position in positions], count, seed)
    )


def select_on_reported(splits: Splits) -> Splits:
    """Use the test examples for validation, too. This biases the reported results and changes the digest."""
    state = digest([("validation", "reported", splits.digest.encode())])
    return replace(splits, validation=splits.test, digest=state, selects_on_reported=True)


def digest(rows: Iterable[tuple[str, str, bytes]]) -> str:
    """Compute a SHA-256 of the (split, label, content) rows in order, each field preceded by its length."""
    state = sha256()
    for split, label, content in rows:
        for field in (split.encode(), label.encode(), content):
            state.update(len(field).to_bytes(8, "big") + field)
    return state.hexdigest()
