"""Tiny models of a type: 5 layers of width 32, windows of 8 tokens (shorter than the texts).

Weights have standard deviation 0.2: at the usual 0.02, a wrong plan would pass.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
import transformers
from torch import Tensor, nn

Kind = Literal["decoder", "encoder", "vision", "audio"]

DEPTH = 5
WIDTH = 32
VOCABULARY = 80
PAD, BOS, EOS = 0, 1, 2
WEIGHT_SCALE = 0.2

TEXT: Mapping[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": EOS,
}

SIGHT: Mapping[str, Any] = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 4,
    "image_size": 16,
    "patch_size": 4,
    "num_labels": 7,
}

SOUND: Mapping[str, Any] = {**SIGHT, "vocab_size": 32}

_BASES: Mapping[Kind, Mapping[str, Any]] = {"decoder": TEXT, "encoder": TEXT, "vision": SIGHT, "audio": SOUND}
_SHAPES: Mapping[Kind, tuple[int, ...]] = {"decoder": (), "encoder": (), "vision": (3, 16, 16), "audio": (640,)}


@dataclass(frozen=True)
class Specimen:
    """A model type and its head; `OMIT` in `config` drops a dimension, `reads` maps layers to their source of keys."""

    model_type: str
    model_class: str
    kind: Kind
    layers: str
    tags: tuple[str, ...]
    shape: tuple[int, ...]
    config: Mapping[str, Any]
    reads: Mapping[int, int]

    def __str__(self) -> str:
        return self.model_type


@dataclass(frozen=True)
class Refusal:
    specimen: Specimen
    reason: str

    def __str__(self) -> str:
        return self.specimen.model_type


OMIT = "omit"


def specimen(kind: Kind, type: str, *, layers: str = "", **row: Any) -> Specimen:
    shape = tuple(row.get("shape", _SHAPES[kind]))
    tags, config, reads = tuple(row.get("tags", ())), row.get("config", {}), row.get("reads", {})
    return Specimen(type, row["class"], kind, layers, tags, shape, config, reads)


def build(one: Specimen) -> nn.Module:
    settings = {**_BASES[one.kind], **one.config}
    config = transformers.CONFIG_MAPPING[one.model_type](
        **{name: value for name, value in settings.items() if value != OMIT}
    )
    with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # about optional kernels, which a CPU does not have
        torch.manual_seed(0)
        model = getattr(transformers, one.model_class)(config).float().eval()
    _enlarge(model)
    return model


def inputs(one: Specimen, model: nn.Module, batch: int = 2, length: int = 12) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(len(one.model_type) + length)
    name = model.main_input_name
    if name == "input_ids":
        ids = torch.randint(EOS + 1, VOCABULARY, (batch, length), generator=generator)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return {name: torch.randn(batch, *one.shape, generator=generator)}


def padded(batch: Mapping[str, Tensor], pad: int = 3) -> dict[str, Tensor]:
    ids, mask = batch["input_ids"].clone(), batch["attention_mask"].clone()
    ids[0, :pad] = PAD
    mask[0, :pad] = 0
    return {**batch, "input_ids": ids, "attention_mask": mask}


@torch.no_grad()
def _enlarge(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    for _, parameter in sorted(model.named_parameters()):
        if parameter.dim() > 1:
            parameter.normal_(0.0, WEIGHT_SCALE, generator=generator)
        else:  # norms, biases, time constants keep the values they start from, a little disturbed
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
