"""Convert published checkpoints of ELC-BERT and LTG-BERT.

All published models have the same tensor names but different equations, so the caller must name the variant. The number
of heads and the padding token are not in the tensors, either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from layerwise.errors import CheckpointError
from layerwise.models.elc.configuration import ElcConfig, find_variant
from layerwise.models.elc.encoder import ElcForMaskedLM
from layerwise.models.elc.layers import bucket_table

HEAD_WIDTH = 64
"""Width of a head in all published checkpoints."""

_NAMES = {
    "embedding.word_embedding.weight": "encoder.embedding.words.weight",
    "embedding.relative_embedding": "encoder.embedding.positions",
    "embedding.relative_layer_norm.weight": "encoder.embedding.position_norm.weight",
    "embedding.relative_layer_norm.bias": "encoder.embedding.position_norm.bias",
    "transformer.prev_layer_weights": "encoder.output_weights.scalars",
    "classifier.nonlinearity.1.weight": "head.dense.weight",
    "classifier.nonlinearity.1.bias": "head.dense.bias",
    "classifier.nonlinearity.5.weight": "head.projection.weight",
    "classifier.nonlinearity.5.bias": "head.projection.bias",
}
_LAYER_NAMES = {
    "prev_layer_weights": "layer_weights.scalars",
    "attention.in_proj_qk.weight": "attention.query_key.weight",
    "attention.in_proj_qk.bias": "attention.query_key.bias",
    "attention.in_proj_v.weight": "attention.value.weight",
    "attention.in_proj_v.bias": "attention.value.bias",
    "attention.out_proj.weight": "attention.projection.weight",
    "attention.out_proj.bias": "attention.projection.bias",
    "attention.post_layer_norm.weight": "attention.post_norm.weight",
    "attention.post_layer_norm.bias": "attention.post_norm.bias",
    "mlp.mlp.1.weight": "feed_forward.up.weight",
    "mlp.mlp.4.weight": "feed_forward.down.weight",
}
_LAYER = re.compile(r"transformer\.layers\.(\d+)\.(.+)")
_WORDS, _POSITIONS = "embedding.word_embedding.weight", "embedding.relative_embedding"
_TIED, _DISTANCES = "classifier.nonlinearity.5.weight", "attention.position_indices"


def convert_elc(
    state_dict: Mapping[str, Tensor],
    *,
    variant: str,
    heads: int | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    pad_token_id: int | None = None,
) -> ElcForMaskedLM:
    """Convert the tensors of a published checkpoint to an equivalent model in evaluation mode.

        model = convert_elc(load_file("model.safetensors"), variant="elc-base", tokenizer=tokenizer)

    Args:
        state_dict: The published tensors. Names may start with `module.`.
        variant: Variant of the model; see `VARIANTS`.
        heads: Number of attention heads (default: width / 64).
        tokenizer: Tokenizer that has the padding token.
        pad_token_id: Id of the padding token, if there is no tokenizer.

    Raises:
        CheckpointError: If tensors are missing, unexpected, or do not fit the variant.
    """
    given = {name.removeprefix("module."): tensor for name, tensor in state_dict.items()}
    config = _configuration(given, variant, heads)
    config.pad_token_id = _padding_id(tokenizer, config.vocab_size) if tokenizer is not None else pad_token_id
    _check_buckets(given, config)
    renamed = {_converted_name(name): tensor for name, tensor in given.items() if not name.endswith(_DISTANCES)}
    # Checkpoints may omit the second name of the tied table.
    renamed.setdefault(_NAMES[_TIED], given[_WORDS])
    if not torch.equal(renamed[_NAMES[_TIED]], given[_WORDS]):
        raise CheckpointError(f"{_TIED} must equal {_WORDS}, to which it is tied in every published model")
    with torch.device("meta"):
        model = ElcForMaskedLM(config)
    _check_names(renamed, model, variant)
    model = ElcForMaskedLM(config)
    model.load_state_dict(renamed)
    return model.eval()


def read_checkpoint(file: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, or of a torch file without running its code."""
    if not file.is_file():
        raise CheckpointError(
            f"checkpoint file {file} does not exist; use a .safetensors file, or a .bin or .pt file of torch"
        )
    try:
        if file.suffix == ".safetensors":
            return load_file(file)
        content: Any = torch.load(file, map_location="cpu", weights_only=True)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file} is not a valid safetensors file ({error}); fetch it again") from error
    except Exception as error:  # torch raises many types for truncated files and for code
        raise CheckpointError(
            f"{file} must contain only tensors ({str(error).strip().splitlines()[0]}), since code is never run; save "
            "the model's state_dict, preferably as safetensors"
        ) from error
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        content = content["model"]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{file} must contain a model's state_dict")
    return content


def _configuration(given: Mapping[str, Tensor], variant: str, heads: int | None) -> ElcConfig:
    if find_variant(variant).mixture == "free":
        raise CheckpointError(
            f"no checkpoint of the variant {variant} was published; name the variant of your checkpoint"
        )
    numbers = [int(match[1]) for name in given if (match := _LAYER.fullmatch(name))]
    up = "transformer.layers.0.mlp.mlp.1.weight"
    absent = [name for name in (_WORDS, _POSITIONS, up) if name not in given]
    if absent:
        raise CheckpointError(
            f"the checkpoint has no tensor {absent[0]} (its first is {next(iter(given), 'none')}); "
            "use a pre-training checkpoint of ELC-BERT or LTG-BERT"
        )
    vocabulary, width = given[_WORDS].shape
    if heads is None and width % HEAD_WIDTH:
        raise CheckpointError(f"the number of heads cannot be inferred from the width {width}; pass heads=...")
    distances = given.get(f"transformer.layers.0.{_DISTANCES}")
    return ElcConfig(
        variant=variant,
        vocab_size=vocabulary,
        hidden_size=width,
        num_hidden_layers=max(numbers) + 1,
        num_attention_heads=heads or width // HEAD_WIDTH,
        intermediate_size=given[up].shape[0] // 2,
        position_buckets=(given[_POSITIONS].shape[0] + 1) // 2,
        max_position_embeddings=512 if distances is None else distances.shape[0],
    )


def _converted_name(name: str) -> str:
    match = _LAYER.fullmatch(name)
    if match is not None and match[2] in _LAYER_NAMES:
        return f"encoder.layers.{match[1]}.{_LAYER_NAMES[match[2]]}"
    return _NAMES.get(name, name)


def _published_name(name: str) -> str:
    own = {ours: theirs for theirs, ours in _NAMES.items()}
    layers = {ours: theirs for theirs, ours in _LAYER_NAMES.items()}
    _, _, rest = name.partition("encoder.layers.")
    number, _, inner = rest.partition(".")
    return f"transformer.layers.{number}.{layers[inner]}" if inner in layers else own.get(name, name)


def _check_names(renamed: Mapping[str, Tensor], model: ElcForMaskedLM, variant: str) -> None:
    expected = model.state_dict()
    missing = sorted(_published_name(name) for name in expected.keys() - renamed.keys())
    surplus = sorted(_published_name(name) for name in renamed.keys() - expected.keys())
    if missing or surplus:
        problems = [f"lacks {_join_names(missing)}"] if missing else []
        problems += [f"has the unexpected {_join_names(surplus)}"] if surplus else []
        raise CheckpointError(
            f"the checkpoint does not fit {variant}: it {' and '.join(problems)}; {_likely_variant(renamed)}"
        )
    for name, tensor in expected.items():
        if tensor.shape != renamed[name].shape:
            raise CheckpointError(
                f"{_published_name(name)} must have the shape {tuple(tensor.shape)}, got {tuple(renamed[name].shape)}"
            )


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _likely_variant(renamed: Mapping[str, Tensor]) -> str:
    if _NAMES["transformer.prev_layer_weights"] in renamed:
        return "it has layer weights for the output, so it is weighted-output"
    if any(name.endswith("layer_weights.scalars") for name in renamed):
        return "it has no layer weights for the output, so it is elc, elc-base, zero or normalized"
    return "it has no layer weights, so it is ltg"


def _padding_id(tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> int:
    if not isinstance(tokenizer.pad_token_id, int):
        raise CheckpointError("the tokenizer has no padding token; set tokenizer.pad_token = '[PAD]', or pass its id")
    if len(tokenizer) > vocabulary:
        raise CheckpointError(
            f"the tokenizer has {len(tokenizer)} tokens, but the checkpoint has {vocabulary}; use the tokenizer that "
            "it was trained with"
        )
    return tokenizer.pad_token_id


def _check_buckets(given: Mapping[str, Tensor], config: ElcConfig) -> None:
    length = config.max_position_embeddings
    table = bucket_table(config, "cpu")
    for name, stored in given.items():
        if name.endswith(_DISTANCES):
            positions = torch.arange(length, device="cpu")
            if stored.shape != (length, length) or not torch.equal(
                stored.long(), table[positions[:, None] - positions + length - 1]
            ):
                raise CheckpointError(
                    f"the relative positions in {name} must be those of {config.position_buckets} distance buckets "
                    f"for up to {length} tokens; use an unchanged checkpoint"
                )
