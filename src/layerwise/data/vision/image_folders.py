"""Folders of images: one subfolder a class, named after it, as most image sets are kept.

    flowers/rose/1.jpg  flowers/tulip/7.jpg                       one set, to be split
    flowers/train/rose/1.jpg  flowers/test/rose/9.jpg             splits of its own; also val, validation

Classes are numbered in the order of their names. Images may lie in subfolders of their class; hidden files and files
that are not images by their names are passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from layerwise.data.vision.content_digests import FileVersion
from layerwise.data.vision.image_sources import SPLIT_NAMES, ImageSet, ImageSource, image_bytes
from layerwise.errors import DataError

SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
"""What an image's name ends in, in small or capital letters."""


def folder_images(folder: Path) -> ImageSet:
    """The images in the class folders of `folder`, named by their paths in it.

    Raises `DataError` for a class folder without images, for images outside of class folders, for fewer than two
    classes, for a test without a train folder, and for classes that train does not have.
    """
    splits = _splits(folder)
    train = splits["train"]
    classes = tuple(inner.name for inner in _subfolders(train))
    if not classes:
        raise DataError(_without_classes(train))
    parts = {split: tuple(_pictures(path, folder, classes)) for split, path in splits.items()}
    return ImageSet(folder.resolve().name, classes, parts)


def _splits(folder: Path) -> dict[str, Path]:
    """The folder of each split; `folder` itself is train where it has no splits."""
    folders: dict[str, Path] = {}
    for inner in _subfolders(folder):
        split = SPLIT_NAMES.get(inner.name.lower())
        # A class may be called "test": a split is a folder of folders.
        if split is not None and _subfolders(inner):
            if split in folders:
                raise DataError(
                    f"{folder} holds both {folders[split].name}/ and {inner.name}/, which mean the same split: keep one"
                )
            folders[split] = inner
    if folders and "train" not in folders:
        given = ", ".join(f"{path.name}/" for path in folders.values())
        raise DataError(f"{folder} holds {given} but no train/: add train/ with the same class folders")
    return folders or {"train": folder}


def _pictures(path: Path, root: Path, classes: tuple[str, ...]) -> Iterator[ImageSource]:
    numbers = {name: number for number, name in enumerate(classes)}
    for inner in _subfolders(path):
        if inner.name not in numbers:
            raise DataError(
                f"{inner} is a class that the training images do not have; they have {', '.join(classes)}: "
                "move it, or add images of it to train/"
            )
        files = [file for file in sorted(inner.rglob("*")) if _is_image(file, inner)]
        if not files:
            raise DataError(
                f"the class folder {inner} holds no image (looked for {', '.join(SUFFIXES)}): remove it, or fill it"
            )
        for file in files:
            name = file.relative_to(root).as_posix()
            yield ImageSource(name, numbers[inner.name], partial(image_bytes, file), partial(FileVersion.of, file))


def _without_classes(folder: Path) -> str:
    loose = sum(_is_image(file, folder) for file in folder.iterdir())
    contents = f"{loose} images and no subfolders" if loose else "no subfolders"
    return (
        f"{folder} holds {contents}: put the images of each class into a folder of its own, such as {folder / 'cat'}/"
    )


def _subfolders(folder: Path) -> list[Path]:
    return sorted(inner for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith("."))


def _is_image(file: Path, folder: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(folder).parts)
    return not hidden and file.suffix.lower() in SUFFIXES and file.is_file()
