"""The configuration of the bundled models, and published files that become theirs."""

import math
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForMaskedLM, PreTrainedTokenizerBase

from cli.command import layerwise as command
from cli.command import refused
from layerwise.errors import CheckpointError, ModelError
from layerwise.models import VARIANTS, ElcConfig, ElcForMaskedLM, ElcModel, convert_elc
from layerwise.models.elc.convert import read_checkpoint
from layerwise.studies.save.verb import save_convert
from models.published import as_published, logits, padded_batch, random_model, row, small_config
from tier import first_fast
from tiny_tokenizers import word_tokenizer

PUBLISHED = get_args(get_type_hints(save_convert)["variant"])
BUCKETS = "transformer.layers.1.attention.position_indices"


@cache
def indices() -> Tensor:
    return torch.tensor([[row(i - j) for j in range(512)] for i in range(512)])


def checkpoint(variant: str) -> dict[str, Tensor]:
    tensors = {name: tensor.detach().clone() for name, tensor in as_published(random_model(variant)).items()}
    for number in range(3):
        tensors[f"transformer.layers.{number}.attention.position_indices"] = indices().clone()
    return tensors


@pytest.mark.parametrize("variant", PUBLISHED)
def test_a_converted_checkpoint_computes_what_the_published_file_did(variant: str) -> None:
    tensors = checkpoint(variant)
    single = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    model = convert_elc(
        {f"module.{name}": tensor for name, tensor in single.items()}, variant=variant, heads=2, pad_token_id=3
    )
    assert isinstance(model, ElcForMaskedLM)
    assert not model.training
    assert (model.config.pad_token_id, model.config.position_buckets, model.config.intermediate_size) == (3, 32, 40)
    ids, real = padded_batch(50)
    with torch.no_grad():
        found = model.double()(ids, attention_mask=real).logits
        double = {name: tensor.double() for name, tensor in single.items()}
        expected = logits(double, ids, real.bool(), variant=variant, heads=2)
    assert float((found - expected).abs().max() / expected.abs().max()) < 1e-9
    assert model.head.projection.weight is model.encoder.embedding.words.weight


def tokenizer(words: int, *, padding: bool = True) -> PreTrainedTokenizerBase:
    made = word_tokenizer([f"w{number}" for number in range(words)])
    made.pad_token = made.pad_token if padding else None
    return made


Change = dict[str, Tensor | None]
REFUSED: list[tuple[str, str, Change, dict[str, Any], str]] = [
    ("weighted-output", "elc", {}, {}, "the checkpoint does not fit elc: it has the unexpected"),
    ("elc", "weighted-output", {}, {}, r"lacks transformer\.prev_layer_weights; .* so it is elc, elc-base, zero or"),
    (
        "ltg",
        "elc",
        {},
        {},
        r"lacks transformer\.layers\.0\.prev_layer_weights, .*; it has no layer weights, so it is ltg",
    ),
    ("elc", "ltg", {}, {}, "the checkpoint does not fit ltg: it has the unexpected"),
    ("elc", "denseformer", {}, {}, "no checkpoint of the variant denseformer was published"),
    ("zero", "zeros", {}, {}, "did you mean zero"),
    ("elc", "elc", {"classifier.nonlinearity.1.bias": None}, {}, r"lacks classifier\.nonlinearity\.1\.bias"),
    ("elc", "elc", {"embedding.word_embedding.weight": None}, {}, r"no tensor embedding\.word_embedding\.weight"),
    ("elc", "elc", {"pooler": torch.ones(2)}, {}, "the checkpoint does not fit elc: it has the unexpected pooler"),
    ("elc", "elc", {"classifier.nonlinearity.5.weight": torch.ones(61, 32)}, {}, r"5\.weight must equal"),
    ("elc", "elc", {"classifier.nonlinearity.5.bias": torch.ones(7)}, {}, r"5\.bias must have the shape"),
    (
        "elc",
        "elc",
        {BUCKETS: torch.zeros(512, 512, dtype=torch.long)},
        {},
        r"attention\.position_indices must be those of",
    ),
    ("elc", "elc", {}, {"heads": None}, "the number of heads cannot be inferred from the width"),
    ("elc", "elc", {}, {"tokenizer": tokenizer(2, padding=False)}, "the tokenizer has no padding token"),
    ("elc", "elc", {}, {"tokenizer": tokenizer(100)}, "the tokenizer has 106 tokens, but the checkpoint has"),
]


@pytest.mark.parametrize(("of", "asked", "change", "options", "message"), REFUSED)
def test_mismatched_checkpoints_are_refused_with_the_tensor(
    of: str, asked: str, change: Change, options: dict[str, Any], message: str
) -> None:
    tensors = {name: tensor for name, tensor in {**checkpoint(of), **change}.items() if tensor is not None}
    with pytest.raises((CheckpointError, ModelError), match=message):
        convert_elc(tensors, variant=asked, **{"heads": 2, **options})


@pytest.mark.parametrize("kind", ["safetensors", "bin", "training.pt"])
def test_the_command_writes_a_folder_that_transformers_opens(tmp_path: Path, kind: str) -> None:
    tensors = checkpoint("zero")
    file = tmp_path / f"model.{kind}"
    if kind == "safetensors":
        del tensors["classifier.nonlinearity.5.weight"]
        save_file(tensors, file)
    else:
        torch.save({"model": tensors} if kind.startswith("training") else tensors, file)
    word_tokenizer(["tree"]).save_pretrained(tmp_path / "words")
    options = ("--variant", "zero", "--tokenizer", tmp_path / "words", "--heads", "2", "--output", tmp_path / "out")
    ended = command("save", "convert", file, *options)
    assert ended.code == 0, ended.err
    model = AutoModelForMaskedLM.from_pretrained(tmp_path / "out").double()
    assert (model.config.variant, model.config.pad_token_id) == ("zero", 0)
    ids, real = padded_batch(20)
    with torch.no_grad():
        found = model(ids, attention_mask=real).logits
        expected = logits(tensors, ids, real.bool(), variant="zero", heads=2)
    assert float((found - expected).abs().max()) < 1e-4
    assert "already exists and is not empty" in refused("save", "convert", file, *options)


def test_files_that_hold_no_tensors_are_refused_and_a_table_may_be_left_out(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="checkpoint file"):
        read_checkpoint(tmp_path / "none.bin")
    (tmp_path / "cut.safetensors").write_bytes(b"short")
    with pytest.raises(CheckpointError, match=r"is not a valid safetensors file \(Error while"):
        read_checkpoint(tmp_path / "cut.safetensors")
    torch.save({"model": Path("somewhere")}, tmp_path / "code.bin")
    with pytest.raises(CheckpointError, match=r"must contain only tensors \(Weights only load"):
        read_checkpoint(tmp_path / "code.bin")
    torch.save([1, 2], tmp_path / "list.bin")
    with pytest.raises(CheckpointError, match="must contain a model's state_dict"):
        read_checkpoint(tmp_path / "list.bin")

    tensors = checkpoint("elc")
    del tensors["classifier.nonlinearity.5.weight"]
    config = convert_elc(tensors, variant="elc", heads=2, tokenizer=tokenizer(2), pad_token_id=4).config
    assert (config.vocab_size, config.pad_token_id) == (61, 0)


# Parameters that the layer weights of twelve layers add to the backbone.
EXTRA = {"ltg": 0, "weighted-output": 91, "denseformer": 90}


@pytest.mark.parametrize(("size", "millions", "within"), [("small", 23.8, 0.1), ("base", 98.2, 0.3)])
@pytest.mark.parametrize("variant", first_fast(VARIANTS, 2))
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
    ("variant", "initialization", "row"),
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
def test_layer_weights_begin_as_named(variant: str, initialization: str | None, row: list[float]) -> None:
    weights = ElcModel(small_config(variant, initialization=initialization)).layer_weights()
    assert weights[2].tolist() == pytest.approx([*row, 0.0], abs=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variant": "elk"}, "unknown ELC-BERT variant 'elk'"),
        ({"initialization": "bias"}, "unknown initialization 'bias'"),
        ({"initialization": "nan"}, "write a number for the previous layer, such as 2"),
        ({"missing_sources": "kept"}, "unknown missing_sources 'kept'"),
        ({"num_attention_heads": 5}, r"hidden_size \(384\) must be divisible by"),
        ({"position_buckets": 31}, "position_buckets must be even"),
        ({"size": "smal"}, "unknown ELC-BERT size 'smal'"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ElcConfig(**settings) if "size" not in settings else ElcConfig.of_size(**settings)  # type: ignore[arg-type]
