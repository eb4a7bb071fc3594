"""Which images of a set train a model, which select a checkpoint, and which are reported.

    the set brings               train         select              report
    train, validation and test   train         validation          test
    train and validation         9/10 train    1/10 of train       validation, all of it
    train and test               9/10 train    1/10 of train       test
    train alone                  8/10          1/10                1/10

Tenths are of each class, drawn from a seed. With `select_on="reported"`, as in most papers, nothing is cut from train
for the selection, which uses the reported images.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from layerwise.data.splits import SPLITS, evenly_ordered, limited, stratified
from layerwise.data.vision.image_sources import ImageSet, ImageSource

SelectOn = Literal["held-out", "reported"]

TENTH = 0.1

Sources = tuple[ImageSource, ...]


def divided(
    listed: ImageSet, seed: int, select_on: SelectOn = "held-out", limit: int | None = None
) -> tuple[dict[str, Sources], str]:
    """Return the images of each split, at most `limit` of each, and in words where they are from.

    Held-out images are in an order drawn from `seed`, in which classes are spread evenly. There are none to select if
    the reported images do. Raises `DataError` for a class too small to cut.
    """
    brought = listed.parts
    reported = next((name for name in ("test", "validation") if name in brought), None)
    selecting = "validation" if "validation" in brought and reported == "test" else None
    to_cut = ["validation"] if selecting is None and select_on == "held-out" else []
    to_cut += ["test"] if reported is None else []
    cut = {"train": brought["train"]}
    if to_cut:
        shares = (1 - TENTH * len(to_cut), *(TENTH for _ in to_cut))
        names = [listed.classes[picture.label] for picture in brought["train"]]
        parts = stratified(names, shares, seed)
        cut = {split: _take(brought["train"], part) for split, part in zip(("train", *to_cut), parts, strict=True)}
    selected = () if select_on == "reported" else cut["validation"] if selecting is None else brought[selecting]
    divided = dict(
        zip(SPLITS, (cut["train"], selected, cut["test"] if reported is None else brought[reported]), strict=True)
    )
    for split, part in divided.items():
        kept = _take(part, limited(_labels(part), limit, seed))
        divided[split] = kept if split == "train" else _take(kept, evenly_ordered(_labels(kept), seed))
    return divided, _describe(reported, selecting, select_on)


def _describe(reported: str | None, selecting: str | None, select_on: str) -> str:
    on = f"reported on all of its {reported} split" if reported else "reported on a tenth of its images"
    if select_on == "reported":
        return f"{on}, on which checkpoints are selected too"
    own = f"on its {selecting} split" if selecting else "on a tenth that is cut from its training images"
    return f"{on}; checkpoints are selected {own}"


def _labels(pictures: Sequence[ImageSource]) -> list[int]:
    return [picture.label for picture in pictures]


def _take(pictures: Sequence[ImageSource], indices: Sequence[int]) -> Sources:
    return tuple(pictures[index] for index in indices)
