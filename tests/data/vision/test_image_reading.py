"""Images are decoded once, upright, augmented only in training, and checked against a head's labels."""

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import datasets
import numpy
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, LlamaConfig, PretrainedConfig, ViTConfig

from layerwise.data.splits import Examples, Splits
from layerwise.data.vision import image_reading, images
from layerwise.data.vision.image_sources import decode_image
from layerwise.data.vision.images import check_labels, read_images
from layerwise.data.vision.preprocessing import ImageExamples, Preprocessing, augment, load_preprocessing
from layerwise.errors import DataError, ModelError

SMALL = Preprocessing(4, 4)


def draw(file: Path, value: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(numpy.full((6, 5, 3), value, dtype=numpy.uint8)).save(file.with_suffix(".ppm"), "ppm")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    datasets.disable_progress_bars()
    return tmp_path / "cache" / "images"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(10):
        draw(tmp_path / "set" / "dark" / f"{number}", number)
        draw(tmp_path / "set" / "bright" / f"{number}", 200 + number)
    return tmp_path / "set"


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    seen: list[bytes] = []
    real = image_reading.decode_image

    def decode_image(content: bytes) -> Image.Image:
        seen.append(content)
        return real(content)

    monkeypatch.setattr(image_reading, "decode_image", decode_image)
    return seen


def gray_values(splits: Splits) -> list[list[int]]:
    parts = (splits.train, splits.validation, splits.test)
    found = [[round(float(each["pixel_values"].mean()) * 127.5 + 127.5) for each in part] for part in parts]
    assert [[int(each["labels"]) for each in part] for part in parts] == [
        [int(gray < 100) for gray in part] for part in found
    ]
    return found


@pytest.fixture(params=["kept", "streamed"])
def streamed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "streamed":
        monkeypatch.setattr(images, "MAX_CACHED_BYTES", 0)
    return bool(request.param == "streamed")


def test_cached_images_are_not_decoded_again(folder: Path, cache: Path, looked: list[bytes], streamed: bool) -> None:
    first = read_images(folder, preprocessing=SMALL)
    assert len(looked) == 20
    second = read_images(folder, preprocessing=SMALL)
    other = read_images(folder, preprocessing=SMALL, seed=1)  # the same images, divided otherwise
    assert len(looked) == 20
    assert second.digest == first.digest != other.digest
    assert gray_values(second) == gray_values(first) != gray_values(other)
    assert sorted(gray for part in gray_values(other) for gray in part) == [*range(10), *range(200, 210)]
    assert len(list(cache.iterdir())) == 1


@pytest.mark.usefixtures("streamed")
def test_a_changed_file_is_decoded_again(folder: Path, looked: list[bytes]) -> None:
    before = read_images(folder, preprocessing=SMALL)
    draw(folder / "dark" / "3", 99)
    looked.clear()
    after = read_images(folder, preprocessing=SMALL)
    assert (folder / "dark" / "3.ppm").read_bytes() in looked
    assert after.digest != before.digest
    assert gray_values(after) == [[99 if gray == 3 else gray for gray in part] for part in gray_values(before)]


def test_valid_images_are_decoded_once_despite_a_damaged_one(folder: Path, looked: list[bytes]) -> None:
    (folder / "dark" / "3.ppm").write_bytes(b"damaged")
    for _ in range(2):
        splits = read_images(folder, preprocessing=SMALL, unreadable="skip")
        assert splits.skipped == ("dark/3.ppm",)
        assert sorted(gray for part in gray_values(splits) for gray in part) == [
            0,
            1,
            2,
            *range(4, 10),
            *range(200, 210),
        ]
    assert len(looked) == 20 + 2  # the damaged one once more in each start, in case a disk had failed


def test_a_repaired_image_is_used_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(content: bytes) -> Image.Image:
        raise DataError("Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(image_reading, "decode_image", fail)
        with pytest.raises(DataError, match="20 of 20"):
            read_images(folder, preprocessing=SMALL)
    assert read_images(folder, preprocessing=SMALL).skipped == ()


def test_other_preprocessing_decodes_again(folder: Path) -> None:
    one, other = (read_images(folder, preprocessing=Preprocessing(side, side)) for side in (4, 2))
    assert one.train[0]["pixel_values"].shape == (3, 4, 4)
    assert other.train[0]["pixel_values"].shape == (3, 2, 2)


@pytest.mark.parametrize("damage", [b"", b"no table" * 100, None])
def test_a_damaged_cache_file_is_rewritten(
    folder: Path, cache: Path, looked: list[bytes], damage: bytes | None
) -> None:
    first = gray_values(read_images(folder, preprocessing=SMALL))
    (file,) = cache.iterdir()
    content = file.read_bytes()
    file.unlink()  # a reader may hold it
    file.write_bytes(content[: len(content) // 2] if damage is None else damage)
    looked.clear()
    for _ in range(2):
        assert gray_values(read_images(folder, preprocessing=SMALL)) == first
        assert len(looked) == 20


def test_an_interrupted_start_leaves_no_pixels(folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(image_reading, "decode_image", stopped)
    with pytest.raises(KeyboardInterrupt):
        read_images(folder, preprocessing=SMALL)
    assert not list(cache.iterdir())


def test_an_unwritable_cache_is_bypassed(
    folder: Path, tmp_path: Path, looked: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with_cache = read_images(folder, preprocessing=SMALL)
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAYERWISE_CACHE", str(tmp_path / "file" / "cache"))
    looked.clear()
    without = read_images(folder, preprocessing=SMALL)
    assert (len(looked), gray_values(without)) == (20, gray_values(with_cache))


def test_pixels_are_memory_mapped(folder: Path, cache: Path) -> None:
    read_images(folder, preprocessing=SMALL)
    splits = read_images(folder, preprocessing=SMALL)
    (file,) = cache.iterdir()
    assert str(file) in Path("/proc/self/maps").read_text() or not Path("/proc/self/maps").exists()
    assert isinstance(splits.train, ImageExamples)
    before = splits.train.read(0).clone()
    splits.train.read(0).zero_()  # a copy: the file is not written to
    assert splits.train.read(0).equal(before)


NOISE = numpy.random.default_rng(0).integers(0, 256, (6, 4, 3), dtype=numpy.uint8)


def png(**saved: object) -> bytes:
    content = BytesIO()
    Image.fromarray(NOISE).save(content, "png", **saved)
    return content.getvalue()


def test_exif_orientation_is_applied() -> None:
    turned = Image.Exif()
    turned[0x0112] = 3  # upside down
    assert numpy.array_equal(numpy.array(decode_image(png(exif=turned))), NOISE[::-1, ::-1])


def spot(side: int) -> torch.Tensor:
    pixels = torch.zeros(3, side, side, dtype=torch.uint8)
    pixels[:, side // 2, side // 2 + 1] = 200
    return pixels


def shifts(name: str, side: int) -> set[tuple[int, int]]:
    torch.manual_seed(0)
    found = set()
    for _ in range(400):
        row, column = augment(spot(side), name)[0].nonzero()[0].tolist()
        found.add((row - side // 2, column - side // 2 - 1))
    return found


def test_augmentations_shift_flip_and_pad_with_zeros() -> None:
    assert shifts("none", 8) == {(0, 0)}

    assert shifts("crop", 8) == {(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)}
    assert {max(abs(down), abs(right)) for down, right in shifts("crop", 16)} == {0, 1, 2}

    assert {right for _, right in shifts("crop+flip", 8)} == {-4, -3, -2, -1, 0, 1}

    torch.manual_seed(0)
    bright = torch.full((1, 8, 8), 9, dtype=torch.uint8)
    sums = {int(augment(bright, "crop").sum()) for _ in range(100)}
    assert sums == {9 * 64, 9 * 56, 9 * 49}


def splits(*classes: str) -> Splits:
    return Splits("pets", "", Examples(), Examples(), Examples(), classes)


def head(*names: str) -> ViTConfig:
    return ViTConfig(id2label=dict(enumerate(names)), label2id={name: index for index, name in enumerate(names)})


@pytest.mark.parametrize("config", [head("cat", "sea_lion"), head("Cat", "sea lion"), ViTConfig(num_labels=2)])
def test_consistent_labels(config: ViTConfig) -> None:
    assert check_labels(splits("cat", "sea lion"), config) == ()


def test_a_wrong_number_of_outputs_is_rejected() -> None:
    with pytest.raises(
        DataError,
        match=r"must have 3 outputs for the classes of 'pets' .*, got 5\. .*`layerwise train robust \.\.\. --new-head`",
    ):
        check_labels(splits("cat", "dog", "fox"), ViTConfig(num_labels=5))


@pytest.mark.parametrize(
    ("names", "note"),
    [
        (("cat", "wolf"), r"other names .* output 1 is 'wolf' instead of 'dog'"),
        (("dog", "cat"), "another order"),
    ],
)
def test_other_label_names_are_noted(names: tuple[str, ...], note: str) -> None:
    (found,) = check_labels(splits("cat", "dog"), head(*names))
    assert re.search(note, found)


def test_texts_have_no_labels_to_check() -> None:
    assert check_labels(splits(), ViTConfig(num_labels=5)) == ()


CONFIG = ViTConfig(image_size=24)
GRAY = ViTConfig(image_size=24, num_channels=1)


def noise(height: int, width: int, channels: int = 3) -> Image.Image:
    values = numpy.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=numpy.uint8)
    return Image.fromarray(values if channels == 3 else values[..., 0])


def folder_with(tmp_path: Path, **settings: Any) -> Path:
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    return tmp_path


def model_input(preprocessing: Preprocessing, image: Image.Image) -> torch.Tensor:
    return preprocessing.scaling(preprocessing.pixels(image))


SETTINGS: dict[str, dict[str, Any]] = {
    "a number": {"image_processor_type": "ViTImageProcessor", "size": 24},
    "height and width": {"image_processor_type": "ViTImageProcessor", "size": {"height": 20, "width": 28}},
    "the shorter side": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 30}, "crop_size": 24},
    "a crop wider than the image": {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": 20},
        "crop_size": 31,
    },
    "cut from a square": {
        "image_processor_type": "DeiTImageProcessor",
        "size": {"height": 32, "width": 32},
        "crop_size": 24,
        "resample": 3,
        "image_mean": [0.4, 0.5, 0.6],
        "image_std": [0.2, 0.3, 0.1],
    },
    "neither scaled nor shifted": {
        "image_processor_type": "ViTImageProcessor",
        "size": 24,
        "do_rescale": False,
        "do_normalize": False,
    },
    "a share of a larger image": {"image_processor_type": "ConvNextImageProcessor", "size": {"shortest_edge": 24}},
    "colors in another order": {
        "image_processor_type": "MobileViTImageProcessor",
        "size": {"shortest_edge": 26},
        "crop_size": 24,
    },
    "a different size": {"image_processor_type": "LevitImageProcessor", "size": {"shortest_edge": 24}},
    "an old name": {"feature_extractor_type": "ViTFeatureExtractor", "size": 24, "resample": 0},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("shape", [(40, 57), (57, 40), (10, 9)])
def test_pixels_equal_the_models_processor(tmp_path: Path, name: str, shape: tuple[int, int]) -> None:
    folder = folder_with(tmp_path, **SETTINGS[name])
    image = noise(*shape)
    expected = AutoImageProcessor.from_pretrained(folder, backend="pil")(image, return_tensors="pt")["pixel_values"][0]
    ours = model_input(load_preprocessing(CONFIG, folder), image)
    # One byte in one pixel is at least 1 / 255 here, far above the tolerance.
    assert torch.allclose(ours, expected.float(), rtol=1e-5, atol=1e-5)


def test_missing_preprocessing_uses_the_config(tmp_path: Path) -> None:
    for where in (None, tmp_path):
        found = load_preprocessing(ViTConfig(image_size=(8, 12), num_channels=1), where)
        assert found == Preprocessing(8, 12, 1, (0.5,), (0.5,))
        values = model_input(found, noise(30, 30))
        assert values.shape == (1, 8, 12)
        assert -1 <= values.min() < values.max() <= 1


def test_image_modes_become_the_models_channels() -> None:
    transparent = noise(9, 9).convert("RGBA")
    assert Preprocessing(9, 9).pixels(transparent).shape == (3, 9, 9)
    assert torch.equal(Preprocessing(9, 9).pixels(transparent), Preprocessing(9, 9).pixels(noise(9, 9)))
    gray = Preprocessing(9, 9, 1, (0.5,), (0.5,)).pixels(noise(9, 9))
    assert torch.equal(gray[0], torch.from_numpy(numpy.array(noise(9, 9).convert("L"))))


SHORTEST = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 30}, "do_center_crop": False}
REFUSED: list[tuple[PretrainedConfig, dict[str, Any] | None, str]] = [
    (
        CONFIG,
        {"image_processor_type": "EfficientNetImageProcessor", "size": 24},
        "must only resize and scale images, got EfficientNetImageProcessorPil",
    ),
    (CONFIG, {"image_processor_type": "Siglip2ImageProcessor"}, "got Siglip2ImageProcessorPil"),
    (CONFIG, SHORTEST, 'must be {"height"'),
    (CONFIG, {"image_processor_type": "NoSuchProcessor"}, r"Correct its preprocessor_config\.json"),
    (
        GRAY,
        {"image_processor_type": "ViTImageProcessor", "image_mean": [0.5, 0.5, 0.5]},
        "must have 1 values, one per channel, got 3 and 3",
    ),
    (LlamaConfig(), None, "'llama' model has no image_size"),
    (ViTConfig(num_channels=13), None, r"must take images of 1 \(gray\) or 3 channels"),
]


@pytest.mark.parametrize(("config", "settings", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_invalid_preprocessing_is_rejected(
    config: PretrainedConfig, settings: dict[str, Any] | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        load_preprocessing(config, None if settings is None else folder_with(tmp_path, **settings))


def test_an_unsupported_image_size_is_reported() -> None:
    def processor(image: Image.Image, **switches: bool) -> None:
        raise ValueError("mean must have 1 elements if it is an iterable, got 3")

    with pytest.raises(DataError, match="cannot process an image of 7 x 2000 pixels"):
        Preprocessing(8, 8, processor=processor).pixels(noise(2000, 7))
