"""Labeled images of a directory or dataset, decoded on demand.

Images that do not decode completely, or would lose color depth, are rejected with a reason.
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
"""Formats that Pillow may read; some of its other formats start programs (EPS starts Ghostscript)."""

MAX_PIXELS = 2**26
"""Maximum number of pixels of an image (8,192 x 8,192), which limits the memory of a decoder thread to 200 MB."""

MAX_BYTES = 2**28

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
"""Maps the names that directories and datasets use for splits to the names used here."""


@dataclass(frozen=True, slots=True)
class ImageSource:
    """One labeled image. `name` is its path or row, and `read` returns the bytes of its file."""

    name: str
    label: int
    read: Callable[[], bytes]

    def image(self) -> Image.Image:
        try:
            return decode_image(self.read())
        except (DataError, OSError) as error:
            raise DataError(
                f"Cannot read the image {self.name}: {describe_error(error)}. Repair or remove it."
            ) from error


@dataclass(frozen=True, slots=True)
class ImageSet:
    """Listed images by split: "train", and "validation" and "test" if the set has these splits.

    `fingerprint` changes whenever the files do. It is None if changes cannot be detected.
    """

    name: str
    classes: tuple[str, ...]
    parts: Mapping[str, tuple[ImageSource, ...]]
    fingerprint: str | None = None

    def __post_init__(self) -> None:
        if len(self.classes) < 2:
            raise DataError(
                f"The images of {self.name!r} must have at least two classes, got {len(self.classes)} "
                f"({', '.join(self.classes)})."
            )


def decode_image(content: bytes) -> Image.Image:
    """Decode an image file, oriented by its EXIF data.

    Raises `DataError` for formats that are not in `FORMATS`, for damaged files, and for images with more than
    `MAX_PIXELS` pixels or 8 bits per channel.
    """
    try:
        with catch_warnings():
            simplefilter("ignore", Image.DecompressionBombWarning)  # MAX_PIXELS is lower
            image = Image.open(BytesIO(content), formats=FORMATS)
        _check_pixels(image)
        image.load()
        ImageOps.exif_transpose(image, in_place=True)
    except Image.DecompressionBombError as error:
        raise DataError(f"it has more than {2 * (Image.MAX_IMAGE_PIXELS or 0):,} pixels") from error
    except Exception as error:  # damaged files raise many errors, from zlib to struct
        raise DataError(describe_error(error)) from error
    return image


def _check_pixels(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise DataError(f"it must have at most {MAX_PIXELS:,} pixels, got {image.width:,} x {image.height:,}")
    for decoder, _, _, settings in getattr(image, "tile", ()):
        layout, *more = settings if isinstance(settings, tuple) else (settings,)
        # Pillow silently truncates channels to 8 bits; only the decoder settings show it. `BGR;16` has 16 bits per
        # pixel, and the PPM decoder gets the maximum value.
        deep = _DEEP.search(str(layout)) or (decoder.startswith("ppm") and more and int(more[0]) > 255)
        if deep or image.mode.startswith(("I", "F")):
            raise DataError(f"its pixels must have at most 8 bits per channel, got {layout}")


def read_image_bytes(file: Path) -> bytes:
    try:
        return read_bytes(file, MAX_BYTES)
    except UnreadableError as error:
        raise DataError(f"{file.name} {error}") from error


def describe_error(error: Exception) -> str:
    if isinstance(error, DataError):
        return str(error)
    if isinstance(error, UnidentifiedImageError):
        return "not an image of a known format"
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
