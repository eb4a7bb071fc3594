"""Pictures: labeled images that are listed and not yet read, from a folder or a dataset.

An image that does not decode to its last pixel, or would lose color depth, is a fault with a reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from warnings import catch_warnings, simplefilter

from PIL import Image, ImageOps, UnidentifiedImageError

from layerwise.bounded import UnreadableError, read_bytes
from layerwise.errors import DataError

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
"""What Pillow may read, whatever a file is called: some of its other formats start programs, EPS Ghostscript."""

MOST_PIXELS = 2**26
"""Pixels of the largest image, 8,192 x 8,192: decoded it takes 200 MB, and every thread of a reader decodes one."""

MOST_BYTES = 2**28

_DEEP = re.compile(r"^(?!BGR).*;(12|16|32)")

SPLIT_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "train": "train",
        "training": "train",
        "test": "test",
        "testing": "test",
        "validation": "validation",
        "valid": "validation",
        "val": "validation",
        "dev": "validation",
    }
)
"""What folders and datasets call the splits, and what layerwise calls them."""


@dataclass(frozen=True, slots=True)
class ImageSource:
    """One image with its label: `name` is its path or row, and `read` returns the bytes of its file."""

    name: str
    label: int
    read: Callable[[], bytes]

    def image(self) -> Image.Image:
        try:
            return decoded(self.read())
        except (DataError, OSError) as error:
            raise DataError(f"cannot read the image {self.name}: {fault(error)}; repair it or remove it") from error


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Listed images under a name: `parts` has "train", and "validation" and "test" if the set brings its own.

    `fingerprint` differs whenever the listed files do; None if they may change without it.
    """

    name: str
    classes: tuple[str, ...]
    parts: Mapping[str, tuple[ImageSource, ...]]
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise DataError(
                f"the images of {self.name!r} have {len(self.classes)} class(es) ({', '.join(self.classes)}): "
                "there is nothing to classify, so give at least two"
            )


def decoded(content: bytes) -> Image.Image:
    """Decode an image file, upright by its EXIF data.

    Raises `DataError` with the reason: not one of `FORMATS`, cut, damaged, over `MOST_PIXELS`, over 8 bits a channel.
    """
    try:
        with catch_warnings():
            simplefilter("ignore", Image.DecompressionBombWarning)  # ours is the lower bound
            image = Image.open(BytesIO(content), formats=FORMATS)
        _check_pixels(image)
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
    except Image.DecompressionBombError as error:
        raise DataError(f"more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels; make it smaller") from error
    except Exception as error:  # a damaged file raises whatever its decoder trips over, from zlib to struct
        raise DataError(fault(error)) from error
    return image


def _check_pixels(image: Image.Image) -> None:
    if image.width * image.height > MOST_PIXELS:
        raise DataError(
            f"{image.width:,} x {image.height:,} pixels, and at most {MOST_PIXELS:,} are read; make it smaller"
        )
    for decoder, _, _, settings in getattr(image, "tile", ()):
        layout, *more = settings if isinstance(settings, tuple) else (settings,)
        # Pillow cuts channels to their upper 8 bits, and says so nowhere but in what it asks of the decoder. `BGR;16`
        # is a pixel of 16 bits, and the decoder of PPM gets the largest value.
        deep = _DEEP.search(str(layout)) or (decoder.startswith("ppm") and more and int(more[0]) > 255)
        if deep or image.mode.startswith(("I", "F")):
            raise DataError(
                f"its pixels ({layout}) have more than 8 bits a channel, and would be cut off; convert it to 8"
            )


def image_bytes(file: Path) -> bytes:
    try:
        return read_bytes(file, MOST_BYTES)
    except UnreadableError as error:
        raise DataError(f"{file.name} {error}") from error


def fault(error: Exception) -> str:
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
