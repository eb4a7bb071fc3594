"""Splits: the examples a model is trained on, those that choose a checkpoint, and those that are reported.

Selection and reporting never share an example: a checkpoint chosen by its best loss has been fitted to the examples
that chose it. An image example is `{"pixel_values": float32 (channels, height, width), "labels": int64 ()}`; a text
example `{"input_ids": int64 (seq,), "labels": int64 (seq,)}`, where labels that are not scored are `IGNORED`.
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

from layerwise.data.batches import padded
from layerwise.errors import DataError

_Label = TypeVar("_Label", bound=Hashable)

SPLITS = ("train", "validation", "test")

Example = dict[str, Tensor]
"""One image or one window of text, by the names of the model's arguments."""


class Examples(Dataset[Example]):
    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Example:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class Splits:
    """Three disjoint sets of examples under a name.

    `digest` is a SHA-256 over every example, its label and its split; augmentation does not count. `classes` names the
    labels in order (empty for text), `skipped` the images that could not be read, and `copies` those left out because a
    later split has the same image. `pad_id` pads texts, masked and with labels `IGNORED`.
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
        """Collate to model arguments with "labels": images (batch, channels, height, width), texts `padded`."""
        if "input_ids" in examples[0]:
            return padded(examples, self.pad_id)
        return {key: torch.stack([example[key] for example in examples]) for key in examples[0]}


def stratified(labels: Sequence[Hashable], shares: Sequence[float], seed: int) -> tuple[tuple[int, ...], ...]:
    """The positions of `labels` in as many parts as there are `shares`, every label in its share in each part.

    Of n positions with one label, part k > 0 gets max(1, floor(shares[k] * n)) of them, drawn from `seed` and the
    label alone, and the first part gets the rest: adding a class leaves the others as they were. Positions ascend
    within a part.

    >>> stratified("aaaaabbbbb", (0.6, 0.2, 0.2), seed=0)
    ((0, 2, 4, 6, 7, 8), (3, 9), (1, 5))

    Raises `DataError` for a label with fewer positions than there are parts, or whose first part would be empty.
    """
    parts: list[list[int]] = [[] for _ in shares]
    for label, positions in _positions_of(labels).items():
        later = [max(1, int(share * len(positions))) for share in shares[1:]]
        sizes = [len(positions) - sum(later), *later]
        if sizes[0] < 1:
            raise DataError(
                f"{label!r} has {len(positions)} example(s), too few to split into {len(shares)} sets that share none: "
                f"give it at least {len(shares)}, or separate sets for training, validation and test"
            )
        drawn = iter(Random(f"{seed}/{label}").sample(positions, len(positions)))
        for part, size in zip(parts, sizes, strict=True):
            part.extend(next(drawn) for _ in range(size))
    return tuple(tuple(sorted(part)) for part in parts)


def limited(labels: Sequence[int], limit: int | None, seed: int) -> tuple[int, ...]:
    """The positions of at most `limit` of the `labels`: one of each, then another of each, and so on; ascending.

    Which of a label's positions are taken is drawn from `seed`. Raises `DataError` for fewer than one of each.

    >>> limited([0, 0, 0, 0, 1], 3, seed=0)
    (1, 2, 4)
    """
    if limit is None or limit >= len(labels):
        return tuple(range(len(labels)))
    positions_of = _positions_of(labels)
    if limit < len(positions_of):
        raise DataError(
            f"a limit of {limit} images is less than one for each of the {len(positions_of)} classes: "
            f"use {len(positions_of)} or more"
        )
    drawn = (
        Random(f"{seed}/{label}").sample(positions, len(positions)) for label, positions in sorted(positions_of.items())
    )
    rounds = (position for position in chain.from_iterable(zip_longest(*drawn)) if position is not None)
    return tuple(sorted(islice(rounds, limit)))


def evenly_ordered(labels: Sequence[Hashable], seed: int) -> tuple[int, ...]:
    """Every position of `labels` once, in an order drawn from `seed` in which every label is spread evenly.

    Of n positions with one label the k-th stands at (k + u) / n of the order, u uniform in [0, 1) for each label. So
    any part of the order has the labels in about their shares, and of equally common labels no two among as many
    neighbours as there are labels are the same.

    >>> evenly_ordered("aaaabbbbcc", seed=0)
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
    """Return the positions of at most `count` examples, drawn from `seed`, ascending.

    Images are balanced over classes; examples without a label each are drawn uniformly.
    """
    if count >= len(examples):
        return tuple(range(len(examples)))
    known = getattr(examples, "labels", None)
    if known is None:
        return tuple(sorted(Random(f"{seed}/sample").sample(range(len(examples)), count)))
    labels = [int(label) for label in known]
    present = sorted(set(labels))
    if count >= len(present):
        return limited(labels, count, seed)
    chosen = set(Random(f"{seed}/sample").sample(present, count))
    of_chosen = [position for position, label in enumerate(labels) if label in chosen]
    return tuple(of_chosen[each] for each in limited([labels[position] for position in of_chosen], count, seed))


def selecting_on_reported(splits: Splits) -> Splits:
    """Return the splits with the reported examples also used for selection, which biases the report; another digest."""
    state = digest([("validation", "reported", splits.digest.encode())])
    return replace(splits, validation=splits.test, digest=state, selects_on_reported=True)


def digest(rows: Iterable[tuple[str, str, bytes]]) -> str:
    """SHA-256 over (split, label, content) of every example in order, each field preceded by its length."""
    state = sha256()
    for split, label, content in rows:
        for field in (split.encode(), label.encode(), content):
            state.update(len(field).to_bytes(8, "big") + field)
    return state.hexdigest()
