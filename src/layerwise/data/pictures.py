"""Pictures: labelled images that have been listed and not yet read, from a folder or from a dataset.

Listing is cheap and reading is not, so what is decided by names alone (classes, splits, a limit) is decided first. A
picture is read from its bytes: one that cannot be decoded to its last pixel, or that would lose some of its depth, is
a fault with a reason, which the reader of a whole set refuses or leaves out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from types import MappingProxyType

from PIL import Image, ImageOps, UnidentifiedImageError

from layerwise.errors import DataError

SPLIT_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "train": "train", "training": "train", "test": "test", "testing": "test",
        "validation": "validation", "valid": "validation", "val": "validation", "dev": "validation",
    }
)  # fmt: skip
"""What folders and datasets call the splits, and what layerwise calls them."""


@dataclass(frozen=True, slots=True)
class Picture:
    """One image with its label: `name` is its path or row, `read` gives the bytes of its file."""

    name: str
    label: int
    read: Callable[[], bytes]

    def image(self) -> Image.Image:
        """The image, decoded. Raises `DataError` that names it where it cannot be read."""
        try:
            return decoded(self.read())
        except (DataError, OSError) as error:
            raise DataError(f"cannot read the image {self.name}: {fault(error)}; repair it or remove it") from error


@dataclass(frozen=True, slots=True)
class PictureSet:
    """Listed images under a name: `parts` has "train", and "validation" and "test" where the set brings its own."""

    name: str
    classes: tuple[str, ...]
    parts: Mapping[str, tuple[Picture, ...]]

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise DataError(
                f"the images of {self.name!r} have {len(self.classes)} class(es) ({', '.join(self.classes)}): "
                "there is nothing to tell apart, so give at least two"
            )


def decoded(content: bytes) -> Image.Image:
    """The image in the bytes of a file, upright as its EXIF data say, every pixel decoded.

    Raises `DataError` with the bare reason: no image, cut short, damaged, or more than 8 bits a channel.
    """
    try:
        image = Image.open(BytesIO(content))
        image.load()
        upright = ImageOps.exif_transpose(image)
    except Exception as error:  # a damaged file raises whatever its decoder trips over, from zlib to struct
        raise DataError(fault(error)) from error
    if upright.mode.startswith(("I", "F")):
        raise DataError(f"its pixels ({upright.mode}) have more than 8 bits, and would be cut off at white")
    return upright


def fault(error: Exception) -> str:
    """Why an image could not be read, in few words."""
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
