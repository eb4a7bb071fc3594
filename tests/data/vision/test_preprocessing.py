import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from PIL import Image
from transformers import AutoImageProcessor, LlamaConfig, PretrainedConfig, ViTConfig

from layerwise.data.vision.preprocessing import Preprocessing, preprocessing_of
from layerwise.errors import DataError, ModelError

CONFIG = ViTConfig(image_size=24)
GREY = ViTConfig(image_size=24, num_channels=1)


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
    "colours in another order": {
        "image_processor_type": "MobileViTImageProcessor",
        "size": {"shortest_edge": 26},
        "crop_size": 24,
    },
    "a size of its own": {"image_processor_type": "LevitImageProcessor", "size": {"shortest_edge": 24}},
    "an old name": {"feature_extractor_type": "ViTFeatureExtractor", "size": 24, "resample": 0},
}


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("shape", [(40, 57), (57, 40), (10, 9)])
def test_pixels_are_those_of_the_models_own_processor(tmp_path: Path, name: str, shape: tuple[int, int]) -> None:
    folder = folder_with(tmp_path, **SETTINGS[name])
    image = noise(*shape)
    expected = AutoImageProcessor.from_pretrained(folder, backend="pil")(image, return_tensors="pt")["pixel_values"][0]
    ours = model_input(preprocessing_of(CONFIG, folder), image)
    # One byte in one pixel is at least 1 / 255 here, far above the tolerance.
    assert torch.allclose(ours, expected.float(), rtol=1e-5, atol=1e-5)


def test_without_settings_the_config_decides(tmp_path: Path) -> None:
    for where in (None, tmp_path):
        found = preprocessing_of(ViTConfig(image_size=(8, 12), num_channels=1), where)
        assert found == Preprocessing(8, 12, 1, (0.5,), (0.5,))
        values = model_input(found, noise(30, 30))
        assert values.shape == (1, 8, 12)
        assert -1 <= values.min() < values.max() <= 1


def test_images_of_every_mode_become_the_models_channels() -> None:
    transparent = noise(9, 9).convert("RGBA")
    assert Preprocessing(9, 9).pixels(transparent).shape == (3, 9, 9)
    assert torch.equal(Preprocessing(9, 9).pixels(transparent), Preprocessing(9, 9).pixels(noise(9, 9)))
    grey = Preprocessing(9, 9, 1, (0.5,), (0.5,)).pixels(noise(9, 9))
    assert torch.equal(grey[0], torch.from_numpy(numpy.array(noise(9, 9).convert("L"))))


SHORTEST = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 30}, "do_center_crop": False}
REFUSED: list[tuple[PretrainedConfig, dict[str, Any] | None, str]] = [
    (
        CONFIG,
        {"image_processor_type": "EfficientNetImageProcessor", "size": 24},
        "EfficientNetImageProcessorPil, does more",
    ),
    (CONFIG, {"image_processor_type": "Siglip2ImageProcessor"}, "does more to an image than make bytes"),
    (CONFIG, SHORTEST, "sizes that depend on the image"),
    (CONFIG, {"image_processor_type": "NoSuchProcessor"}, r"correct its preprocessor_config\.json"),
    (GREY, {"image_processor_type": "ViTImageProcessor", "image_mean": [0.5, 0.5, 0.5]}, "need as many means"),
    (LlamaConfig(), None, "'llama' names no image_size"),
    (ViTConfig(num_channels=13), None, "images of 13 channels"),
]


@pytest.mark.parametrize(("config", "settings", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_what_makes_no_bytes_of_one_size_is_refused(
    config: PretrainedConfig, settings: dict[str, Any] | None, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        preprocessing_of(config, None if settings is None else folder_with(tmp_path, **settings))


def test_an_image_that_the_processor_does_not_take_is_refused_with_its_size() -> None:
    def processor(image: Image.Image, **switches: bool) -> None:
        raise ValueError("mean must have 1 elements if it is an iterable, got 3")

    with pytest.raises(DataError, match=r"an image of 7 x 2000 pixels \(mean must .*; give it a more usual size"):
        Preprocessing(8, 8, processor=processor).pixels(noise(2000, 7))
