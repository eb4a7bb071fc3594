"""Sizes, initialization, and invalid settings."""

import math

import pytest
import torch

from layerwise.errors import ModelError
from layerwise.models import VARIANTS, ElcConfig, ElcForMaskedLM, ElcModel
from models.published import small_config

# Parameters that the layer weights of twelve layers add to the backbone.
EXTRA = {"ltg": 0, "weighted-output": 91, "denseformer": 90}


@pytest.mark.parametrize(("size", "millions", "within"), [("small", 23.8, 0.1), ("base", 98.2, 0.3)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_the_published_sizes_have_the_published_number_of_parameters(
    size: str, millions: float, within: float, variant: str
) -> None:
    def parameters(variant: str) -> int:
        with torch.device("meta"):
            return ElcForMaskedLM(ElcConfig.of_size(size, variant=variant)).num_parameters()

    assert abs(parameters(variant) / 1e6 - millions) < within
    assert parameters(variant) - parameters("ltg") == EXTRA.get(variant, 78)


def test_weights_begin_as_described() -> None:
    model = ElcForMaskedLM(ElcConfig.of_size("tiny")).requires_grad_(False)
    std = math.sqrt(2 / (5 * 128))
    # A normal distribution truncated at two standard deviations has 0.88 of the deviation.
    for weight, scale in (
        (model.encoder.embedding.words.weight, 1.0),
        (model.encoder.embedding.positions, 1.0),
        (model.encoder.layers[2].attention.query_key.weight, 1.0),
        (model.encoder.layers[0].feed_forward.up.weight, math.sqrt(1 / 2)),
        (model.encoder.layers[5].feed_forward.down.weight, math.sqrt(1 / 12)),
    ):
        assert float(weight.abs().max()) <= 2 * std * scale * (1 + 1e-6)
        assert float(weight.std()) == pytest.approx(0.8796 * std * scale, rel=0.03)
    biases = [parameter for name, parameter in model.named_parameters() if name.endswith("bias")]
    assert all(float(bias.abs().max()) == 0 for bias in biases)


@pytest.mark.parametrize(
    ("variant", "initialisation", "row"),
    [
        ("elc", None, [1 / (math.e + 2), 1 / (math.e + 2), math.e / (math.e + 2)]),
        ("zero", None, [1 / 3, 1 / 3, 1 / 3]),
        ("zero", "biased", [1 / (math.e + 2), 1 / (math.e + 2), math.e / (math.e + 2)]),
        ("elc", "identity", [0.005, 0.005, 0.99]),
        ("elc", "0", [1 / 3, 1 / 3, 1 / 3]),
        ("elc", "2", [1 / (math.exp(2) + 2), 1 / (math.exp(2) + 2), math.exp(2) / (math.exp(2) + 2)]),
        ("denseformer", None, [0.0, 0.0, 1.0]),
        ("denseformer", "zero", [1 / 3, 1 / 3, 1 / 3]),
    ],
)
def test_layer_weights_begin_as_named(variant: str, initialisation: str | None, row: list[float]) -> None:
    weights = ElcModel(small_config(variant, initialisation=initialisation)).layer_weights()
    assert weights[2].tolist() == pytest.approx([*row, 0.0], abs=1e-6)


def test_denseformer_begins_as_the_backbone() -> None:
    torch.manual_seed(0)
    dense = ElcModel(small_config("denseformer")).eval()
    backbone = ElcModel(small_config("ltg")).eval()
    backbone.load_state_dict(dense.state_dict(), strict=False)
    ids = torch.arange(5, 15)[None]
    with torch.no_grad():
        assert torch.equal(dense(ids).last_hidden_state, backbone(ids).last_hidden_state)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variant": "elk"}, "there is no variant 'elk' of ELC-BERT; did you mean elc"),
        ({"initialisation": "bias"}, "layer weights cannot begin as 'bias'; did you mean biased"),
        ({"initialisation": "nan"}, "write the scalar of the previous layer as a number, such as 2"),
        ({"missing_sources": "kept"}, "missing_sources cannot be 'kept'; did you mean keep"),
        ({"num_attention_heads": 5}, "a width of 384 does not divide among 5 heads"),
        ({"position_buckets": 31}, "position_buckets must be even"),
        ({"size": "smal"}, "there is no size 'smal' of ELC-BERT; did you mean small"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ElcConfig(**settings) if "size" not in settings else ElcConfig.of_size(**settings)  # type: ignore[arg-type]
