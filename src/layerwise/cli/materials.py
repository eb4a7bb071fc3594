"""What a training or an assessment reads: the images or the text that the options name, ready for the model at hand."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from layerwise.cli.corpora import Corpora
from layerwise.cli.screen import PartBar, errors, write
from layerwise.data.images import read_images
from layerwise.data.labels import check_labels
from layerwise.data.preprocessing import preprocessing_of
from layerwise.data.splits import Splits
from layerwise.errors import DataError
from layerwise.measure.reading import objective_of
from layerwise.stack import Stack
from layerwise.stack.load import EMBEDDED
from layerwise.stack.longest import longest_input

DIGITS = "digits"
TEXT_LENGTH = 256
"""Tokens in a window of training text, unless `--length` says otherwise."""


@dataclass(frozen=True, slots=True)
class Material:
    """What the options say about the examples: where they are, which are left out, and the seed that splits them."""

    images: str | None
    text: Path | None
    unreadable: str
    limit: int | None
    length: int | None
    seed: int
    validation: Path | None = None
    test: Path | None = None

    @property
    def corpora(self) -> Corpora:
        """The texts among them."""
        return Corpora(self.text, self.validation, self.test, self.seed)

    def splits(
        self, stack: Stack, place: str | None, *, augmentation: str = "none", check: bool = True, quiet: bool = False
    ) -> Splits:
        """The splits that were named, or the model's own: demo-vit reads digits, demo its text and skills.

        `place` is where the model's settings for images lie. Raises `DataError` for both kinds at once, for none, for
        a kind that the model does not take and, with `check`, for labels that do not fit its head.
        """
        takes_images = getattr(stack.model, "main_input_name", None) == "pixel_values"
        name = stack.source.name
        if self.images is not None and self.text is not None:
            raise DataError("--images and --text were both given; a model reads one of them")
        texts = any(each is not None for each in (self.text, self.validation, self.test))
        if texts if takes_images else self.images is not None:
            raise DataError(f"{name} takes {'images' if takes_images else 'text'}: give {_wanted(takes_images)}")
        if self.limit is not None and not takes_images:
            raise DataError(f"--limit counts images, and {name} takes text: give less of it, or leave --limit out")
        if not takes_images:
            return _texts(stack, self.corpora, self.length)
        images = self.images or (DIGITS if name == "demo-vit" else None)
        if images is None:
            raise DataError(f"images are needed: {_wanted(True)} (only demo-vit brings its own)")
        settings = preprocessing_of(stack.model.config, place)
        with PartBar(quiet) as bar:
            splits = read_images(
                images, preprocessing=settings, seed=self.seed, unreadable=self.unreadable, augmentation=augmentation,
                limit=self.limit, progress=lambda done, total: bar.update("reading images", done / total),
            )  # fmt: skip
        for said in check_labels(splits, stack.model.config) if check else ():
            write(errors, f"note: {said}")
        return splits


def _texts(stack: Stack, corpora: Corpora, length: int | None) -> Splits:
    from layerwise.data.texts import demo_text_splits, splits_of

    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} has no tokenizer beside it; give one with --tokenizer PATH")
    if corpora.text is None and corpora.validation is None and corpora.test is None:
        if stack.source.name not in EMBEDDED:
            raise DataError(f"a text is needed: {_wanted(False)} (only demo brings its own)")
        return demo_text_splits(stack.tokenizer, seed=corpora.seed, length=length or TEXT_LENGTH)
    positions = longest_input(stack.model)
    name, found = corpora.divided()
    for said in found.notes:
        write(errors, f"note: {said}")
    return splits_of(
        stack.tokenizer, name, found.parts, length=length or min(TEXT_LENGTH, positions or TEXT_LENGTH),
        positions=positions, objective=objective_of(stack),
    )  # fmt: skip


def _wanted(images: bool) -> str:
    return "--images FOLDER_OR_DATASET" if images else "--text FILE_OR_FOLDER"
