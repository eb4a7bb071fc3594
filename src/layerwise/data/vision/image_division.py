"""Which images of a set train a model, which select a checkpoint, and which are reported, and in which order.

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
from dataclasses import dataclass, replace

from layerwise.data.splits import SPLITS, evenly_ordered, limited, stratified
from layerwise.data.vision.image_sources import ImageSet, ImageSource
from layerwise.errors import DataError, near_matches

SELECT_ON = ("held-out", "reported")
"""Which images select a checkpoint: some that are neither trained on nor reported, or those that are reported."""

TENTH = 0.1

Sources = tuple[ImageSource, ...]


@dataclass(frozen=True, slots=True)
class ImageDivision:
    """The images of each split, and where they are from; `validation` is empty if the reported images select."""

    train: Sources
    validation: Sources
    test: Sources
    origin: str

    @property
    def parts(self) -> dict[str, Sources]:
        return dict(zip(SPLITS, (self.train, self.validation, self.test), strict=True))

    def limited(self, limit: int | None, seed: int) -> ImageDivision:
        train, validation, test = (
            _taken(part, limited(_labels(part), limit, seed)) for part in (self.train, self.validation, self.test)
        )
        return replace(self, train=train, validation=validation, test=test)

    def ordered(self, seed: int) -> ImageDivision:
        validation, test = (_taken(part, evenly_ordered(_labels(part), seed)) for part in (self.validation, self.test))
        return replace(self, validation=validation, test=test)


def divided(listed: ImageSet, seed: int, select_on: str = "held-out") -> ImageDivision:
    """Divide a set as in the module; raises `DataError` for an unknown `select_on` or a class too small to cut."""
    if select_on not in SELECT_ON:
        raise DataError(
            f"checkpoints are selected on {' or '.join(SELECT_ON)} images; {near_matches(select_on, SELECT_ON)}"
        )
    brought = listed.parts
    reported = next((name for name in ("test", "validation") if name in brought), None)
    selecting = "validation" if "validation" in brought and reported == "test" else None
    to_cut = [
        split
        for split, is_brought in (("validation", selecting is not None), ("test", reported is not None))
        if not is_brought and (split == "test" or select_on == "held-out")
    ]
    cut = _cut(listed, to_cut, seed)
    selected = () if select_on == "reported" else cut["validation"] if selecting is None else brought[selecting]
    origin = _origin(reported, selecting, select_on)
    return ImageDivision(cut["train"], selected, cut["test"] if reported is None else brought[reported], origin)


def _cut(listed: ImageSet, splits: Sequence[str], seed: int) -> dict[str, Sources]:
    train = listed.parts["train"]
    if not splits:
        return {"train": train}
    shares = (1 - TENTH * len(splits), *(TENTH for _ in splits))
    cut = stratified([listed.classes[picture.label] for picture in train], shares, seed)
    return {split: _taken(train, part) for split, part in zip(("train", *splits), cut, strict=True)}


def _origin(reported: str | None, selecting: str | None, select_on: str) -> str:
    on = f"reported on all of its {reported} split" if reported else "reported on a tenth of its images"
    if select_on == "reported":
        return f"{on}, on which checkpoints are selected too"
    own = f"on its {selecting} split" if selecting else "on a tenth that is cut from its training images"
    return f"{on}; checkpoints are selected {own}"


def _labels(pictures: Sequence[ImageSource]) -> list[int]:
    return [picture.label for picture in pictures]


def _taken(pictures: Sequence[ImageSource], indices: Sequence[int]) -> Sources:
    return tuple(pictures[index] for index in indices)
