from io import BytesIO
from pathlib import Path

import numpy
import pytest
from PIL import Image

from layerwise.data.vision.image_sources import ImageSet, ImageSource, decoded
from layerwise.errors import DataError

NOISE = numpy.random.default_rng(0).integers(0, 256, (6, 4, 3), dtype=numpy.uint8)


def png(**saved: object) -> bytes:
    content = BytesIO()
    Image.fromarray(NOISE).save(content, "png", **saved)
    return content.getvalue()


def test_a_picture_is_decoded_from_its_bytes() -> None:
    assert numpy.array_equal(numpy.array(ImageSource("a", 0, png).image()), NOISE)


def test_a_photograph_is_turned_upright() -> None:
    turned = Image.Exif()
    turned[0x0112] = 3  # upside down
    assert numpy.array_equal(numpy.array(decoded(png(exif=turned))), NOISE[::-1, ::-1])


@pytest.mark.parametrize("length", [0, 20, 100])
def test_a_file_that_is_cut_short_is_no_image(length: int) -> None:
    with pytest.raises(DataError):
        decoded(png()[:length])


def test_an_image_that_went_away_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read the image a\.png: No such file"):
        ImageSource("a.png", 0, (tmp_path / "a.png").read_bytes).image()


def test_one_class_is_nothing_to_tell_apart() -> None:
    with pytest.raises(DataError, match=r"1 class\(es\) \(cat\)"):
        ImageSet("pets", ("cat",), {"train": ()})
