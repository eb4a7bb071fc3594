"""What a training or an assessment reads: the images or the text that the options name, ready for the model at hand."""

from __future__ import annotations

from pathlib import Path

from layerwise.cli.screen import PartBar, errors, write
from layerwise.data.images import read_images
from layerwise.data.labels import check_labels
from layerwise.data.preprocessing import preprocessing_of
from layerwise.data.splits import Splits
from layerwise.errors import DataError
from layerwise.measure.reading import objective_of
from layerwise.stack import Stack
from layerwise.stack.load import EMBEDDED

DIGITS = "digits"
TEXT_LENGTH = 256
"""Tokens in a window of training text, unless `--length` says otherwise."""


def splits_for(
    stack: Stack,
    *,
    images: str | None,
    text: Path | None,
    place: str | None,
    augmentation: str = "none",
    unreadable: str = "refuse",
    limit: int | None = None,
    length: int | None = None,
    seed: int = 0,
    check: bool = True,
    quiet: bool = False,
) -> Splits:
    """The splits that the options name, or the model's own: demo-vit reads digits, demo its text and skills.

    `place` is where the model's settings for images lie. Raises `DataError` for both kinds at once, for none, for a
    kind that the model does not take and, with `check`, for labels that do not fit its head.
    """
    takes_images = getattr(stack.model, "main_input_name", None) == "pixel_values"
    name = stack.source.name
    if images is not None and text is not None:
        raise DataError("--images and --text were both given; a model reads one of them")
    if (text if takes_images else images) is not None:
        raise DataError(f"{name} takes {'images' if takes_images else 'text'}: give {_wanted(takes_images)}")
    if takes_images:
        images = images or (DIGITS if name == "demo-vit" else None)
        if images is None:
            raise DataError(f"images to learn from are needed: {_wanted(True)} (only demo-vit brings its own)")
        settings = preprocessing_of(stack.model.config, place)
        with PartBar(quiet) as bar:
            splits = read_images(
                images, preprocessing=settings, seed=seed, unreadable=unreadable, augmentation=augmentation,
                limit=limit, progress=lambda done, total: bar.update("reading images", done / total),
            )  # fmt: skip
        for said in check_labels(splits, stack.model.config) if check else ():
            write(errors, f"note: {said}")
        return splits
    return _texts(stack, text, length, seed)


def _texts(stack: Stack, text: Path | None, length: int | None, seed: int) -> Splits:
    from layerwise.data.corpus import read_corpus
    from layerwise.data.texts import demo_text_splits, text_splits

    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} has no tokenizer beside it; give one with --tokenizer PATH")
    if text is None:
        if stack.source.name not in EMBEDDED:
            raise DataError(f"a text to learn from is needed: {_wanted(False)} (only demo brings its own)")
        return demo_text_splits(stack.tokenizer, seed=seed)
    positions = getattr(stack.text_config, "max_position_embeddings", None)
    return text_splits(
        stack.tokenizer, read_corpus(text), length=length or TEXT_LENGTH, seed=seed, positions=positions,
        objective=objective_of(stack),
    )  # fmt: skip


def _wanted(images: bool) -> str:
    return "--images FOLDER_OR_DATASET" if images else "--text FILE_OR_FOLDER"
