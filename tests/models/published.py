"""LTG-BERT and ELC-BERT a second time from the equations: float64, sequence first, published tensor names.

Nothing is shared with the package, least of all the distance buckets.
"""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from layerwise.models import ElcConfig, ElcForMaskedLM

EPS = 1e-7
# Input of the feed-forward sublayer, and its residual, of (mix, attended).
BLOCKS = {
    "ltg": lambda mix, attended: (mix + attended, mix + attended),
    "elc": lambda mix, attended: (mix + attended, attended),
    "elc-base": lambda mix, attended: (attended, attended),
    "zero": lambda mix, attended: (mix + attended, attended),
    "normalized": lambda mix, attended: (mix + attended, attended),
    "weighted-output": lambda mix, attended: (mix + attended, attended),
    "denseformer": lambda mix, attended: (mix + attended, mix + attended),
}


def logits(
    tensors: Mapping[str, Tensor],
    ids: Tensor,
    real: Tensor,
    *,
    variant: str,
    heads: int,
    order: Sequence[int] | None = None,
    missing: str = "renormalize",
) -> Tensor:
    """Logits (batch, seq, vocabulary); `real` is False at padding, and a repeated layer replaces its earlier state."""
    state = norm(tensors["embedding.word_embedding.weight"][ids.T])
    states = {0: state}
    positions = norm(tensors["embedding.relative_embedding"])
    positions = (
        positions * tensors["embedding.relative_layer_norm.weight"] + tensors["embedding.relative_layer_norm.bias"]
    )
    for number in range(depth(tensors)) if order is None else order:
        layer = f"transformer.layers.{number}."
        below = {source: left for source, left in states.items() if source <= number}
        scalars = tensors.get(layer + "prev_layer_weights")
        if scalars is None and variant != "ltg":  # the first layer of a denseformer has nothing to learn
            scalars = torch.ones(1)
        mixed = state if variant == "ltg" else reading(scalars, below, variant, missing)
        attended = attention(tensors, layer + "attention.", mixed, positions, real, heads)
        read, kept = BLOCKS[variant](mixed, attended)
        state = kept + feed_forward(tensors, layer + "mlp.mlp.", read)
        state = norm(state) if variant == "normalized" else state
        states[number + 1] = state
    if variant in ("weighted-output", "denseformer"):
        state = reading(tensors["transformer.prev_layer_weights"], states, variant, missing)
    hidden = norm(state) @ tensors["classifier.nonlinearity.1.weight"].T + tensors["classifier.nonlinearity.1.bias"]
    hidden = norm(hidden * (1 + torch.erf(hidden / math.sqrt(2))) / 2)
    vocabulary = hidden @ tensors["embedding.word_embedding.weight"].T + tensors["classifier.nonlinearity.5.bias"]
    return vocabulary.transpose(0, 1)


def reading(scalars: Tensor, states: Mapping[int, Tensor], variant: str, missing: str) -> Tensor:
    exponentials = scalars.exp()
    weights = scalars if variant == "denseformer" else exponentials / exponentials.sum()
    present = sum(weights[source] for source in states)
    share = weights.sum() / present if missing == "renormalize" else 1.0
    return sum(weights[source] * share * state for source, state in states.items())


def attention(
    tensors: Mapping[str, Tensor], name: str, states: Tensor, positions: Tensor, real: Tensor, heads: int
) -> Tensor:
    length, _, width = states.shape
    each = width // heads
    weight, bias = tensors[name + "in_proj_qk.weight"], tensors[name + "in_proj_qk.bias"]
    normed = norm(states)
    query, key = (normed @ weight[:width].T + bias[:width], normed @ weight[width:].T + bias[width:])
    position_query, position_key = (
        positions @ weight[:width].T + bias[:width],
        positions @ weight[width:].T + bias[width:],
    )
    value = normed @ tensors[name + "in_proj_v.weight"].T + tensors[name + "in_proj_v.bias"]
    rows = torch.tensor([[row(i - j) for j in range(length)] for i in range(length)])
    parts = []
    for head in range(heads):
        own = slice(head * each, (head + 1) * each)
        q, k = query[:, :, own], key[:, :, own]
        scores = torch.einsum("ibd,jbd->bij", q, k)
        scores = scores + torch.einsum("ibd,ijd->bij", q, position_key[:, own][rows])
        scores = scores + torch.einsum("jbd,ijd->bij", k, position_query[:, own][rows])
        scores = scores / math.sqrt(3 * each)
        exponentials = scores.exp() * real[:, None, :]
        share = exponentials / exponentials.sum(dim=-1, keepdim=True)
        parts.append(torch.einsum("bij,jbd->ibd", share, value[:, :, own]))
    output = torch.cat(parts, dim=-1) @ tensors[name + "out_proj.weight"].T + tensors[name + "out_proj.bias"]
    return norm(output) * tensors[name + "post_layer_norm.weight"] + tensors[name + "post_layer_norm.bias"]


def feed_forward(tensors: Mapping[str, Tensor], name: str, states: Tensor) -> Tensor:
    up = norm(states) @ tensors[name + "1.weight"].T
    value, gate = up[..., : up.shape[-1] // 2], up[..., up.shape[-1] // 2 :]
    smooth = gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) / 2
    return norm(value * smooth) @ tensors[name + "4.weight"].T


def norm(states: Tensor) -> Tensor:
    centered = states - states.mean(dim=-1, keepdim=True)
    return centered / (centered.pow(2).mean(dim=-1, keepdim=True) + EPS).sqrt()


def row(distance: int) -> int:
    size = abs(distance)
    if size > 16:
        size = 16 + math.ceil(math.log(size / 16) / math.log(511 / 16) * 15)
    return 31 + size * (1 if distance > 0 else -1)


def depth(tensors: Mapping[str, Tensor]) -> int:
    return len([name for name in tensors if name.endswith("attention.in_proj_v.weight")])


def small_config(variant: str, **changes: object) -> ElcConfig:
    settings = {
        "vocab_size": 61,
        "hidden_size": 32,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 40,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "classifier_dropout": 0.0,
        "pad_token_id": 3,
    }
    return ElcConfig(variant=variant, **{**settings, **changes})


def randomize(model: torch.nn.Module, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype), alpha=0.3)


def random_model(variant: str, **changes: object) -> ElcForMaskedLM:
    model = ElcForMaskedLM(small_config(variant, **changes)).double().eval()
    randomize(model)
    return model


def as_published(model: ElcForMaskedLM) -> dict[str, Tensor]:
    names = {
        "attention.query_key": "attention.in_proj_qk",
        "attention.value": "attention.in_proj_v",
        "attention.projection": "attention.out_proj",
        "attention.post_norm": "attention.post_layer_norm",
        "feed_forward.up": "mlp.mlp.1",
        "feed_forward.down": "mlp.mlp.4",
        "layer_weights.scalars": "prev_layer_weights",
        "encoder.layers": "transformer.layers",
        "encoder.output_weights.scalars": "transformer.prev_layer_weights",
        "encoder.embedding.words": "embedding.word_embedding",
        "encoder.embedding.positions": "embedding.relative_embedding",
        "encoder.embedding.position_norm": "embedding.relative_layer_norm",
        "head.dense": "classifier.nonlinearity.1",
        "head.projection": "classifier.nonlinearity.5",
    }
    found = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        found[name] = parameter
    return found


def padded_batch(length: int, vocabulary: int = 61) -> tuple[Tensor, Tensor]:
    ids = torch.randint(5, vocabulary, (3, length), generator=torch.Generator().manual_seed(length))
    real = torch.ones(3, length, dtype=torch.long)
    real[1, length // 3 :] = 0
    real[2, : length // 4] = 0
    return ids, real
