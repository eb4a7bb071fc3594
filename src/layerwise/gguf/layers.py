"""Reorder the layers of a GGUF file for a plan: rename tensors, and change the metadata that describes layers.

Some metadata defines the kind of a layer by its number. It is changed so that every layer keeps its kind; if no value
does this, the plan is rejected. `PERIODS`, `BY_DEPTH` and `BOUND` list what llama.cpp hard-codes per architecture.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from layerwise.bounded import named, shown
from layerwise.errors import CheckpointError, PlanError, UnsupportedModelError
from layerwise.gguf.file import ARRAY, CONVERT_AGAIN, MAX_NAME, SCALARS, STRING, GGUFFile, GGUFTensor, MetadataEntry

_BLOCK = re.compile(r"blk\.(\d{1,6})\.(.+)", re.ASCII)

COUNT, PREDICTING = "block_count", "nextn_predict_layers"
"""Settings with the number of layers, and with how many of the last layers are for multi-token prediction."""

# Lists that are unrelated to layers, regardless of their length.
_NOT_PER_LAYER = re.compile(r"rope\.|classifier\.|_token_ids?$")

# Layer numbers, which another order would have to renumber.
_NUMBERS_OF_LAYERS = re.compile(r"layer|block_count|index(?!er)|interval|every|attn_res|mapping|pattern|ratios")

# The only per-layer setting whose key does not start with the architecture.
_XIELU = "xielu."


def _is_last_of_period(layer: int, period: int) -> bool:
    return (layer + 1) % period == 0


WINDOW_PATTERN = "attention.sliding_window_pattern"

KINDS: Mapping[str, Callable[[int, int], object]] = {
    "leading_dense_block_count": lambda layer, count: layer < count,
    "interleave_moe_layer_step": _is_last_of_period,
    "full_attention_interval": _is_last_of_period,
    WINDOW_PATTERN: _is_last_of_period,
    "moe_every_n_layers": lambda layer, period: layer % period == 1,
    "rescale_every_n_layers": lambda layer, period: layer // period,
    "n_deepstack_layers": lambda layer, count: layer + 1 if layer < count else 0,
}
"""Settings that define layer kinds by one number (0: disabled), with functions from layer and number to kind."""

PERIODS: Mapping[str, int] = {
    "afmoe": 4,
    "cohere2": 4,
    "cohere2moe": 4,
    "exaone-moe": 4,
    "exaone4": 4,
    "gemma-embedding": 6,
    "gemma2": 2,
    "gemma3": 6,
    "gpt-oss": 2,
    "laguna": 4,
    "llama4": 4,
    "mellum": 4,
    "modern-bert": 3,
    "olmo2": 4,
    "plamo3": 8,
    "qwen35": 4,
    "qwen35moe": 4,
    "qwen3next": 4,
    "qwen4exp": 4,
    "smallthinker": 4,
    "smollm3": 4,
}
"""Periods that llama.cpp hard-codes: the last layer of each period differs (full attention, or no rotary
embedding). A pattern in the file is read by only some releases of llama.cpp."""

FIRST_OF_EACH = frozenset({"cohere2moe", "laguna", "modern-bert", "smallthinker"})
"""Architectures in which the first layer of each period differs from the others, instead of the last."""

ONLY_WITH_WINDOW = frozenset(
    {"exaone4", "gemma3", "laguna", "mellum", "modern-bert", "olmo2", "plamo3", "smallthinker"}
)
"""Architectures whose layers are all of one kind if the file has no sliding window."""

ONE_WINDOW = frozenset(
    {"lfm2", "llama", "mistral3", "phi3", "phimoe", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "starcoder2"}
)
"""Architectures whose layers all have the same sliding window, or none."""

BY_DEPTH: Mapping[str, Callable[[int], object]] = {
    "baichuan": lambda depth: depth if depth in (32, 40) else None,  # rotary embedding, ALiBi, neither
    "command-r": lambda depth: depth >= 64,  # normalized queries and keys
    "deepseek2": lambda depth: depth in (26, 27, 48),  # queries of full rank
    "exaone4": lambda depth: depth == 64,  # a sliding window
    "gemma2": lambda depth: depth == 46,  # the scale of attention
    "gemma3": lambda depth: depth == 62,
    "minicpm": lambda depth: depth,  # the scale of every update, where the file has no residual_scale
    "minicpm3": lambda depth: depth,
    "mistral4": lambda depth: depth in (26, 27, 48),
}
"""Architectures whose computation in llama.cpp depends on the number of layers, which is mapped to a variant."""

BOUND: Mapping[str, str] = {
    "arwkv7": "all of its layers read what the first one computed",
    "dflash": "it reads layers of another model",
    "eagle3": "it reads layers of another model",
    "minimax-01": "how fast a layer forgets depends on its number, and on the number of layers",
    "rwkv7": "all of its layers read what the first one computed",
}
"""Architectures whose layers depend on their numbers in ways that no setting expresses, with the reason."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A GGUF file with the layers of a plan: (new name, tensor) pairs, and the `changed` metadata as bytes."""

    tensors: tuple[tuple[str, GGUFTensor], ...]
    changed: Mapping[str, bytes]


def depth_of(file: GGUFFile) -> int:
    """Return the number of layers, excluding those for multi-token prediction.

    Raises `UnsupportedModelError` unless the file has exactly one stack of layers.
    """
    depth, split = file.setting(COUNT), file.entries.get("split.count")
    if split is not None and split.value not in (0, 1):
        raise UnsupportedModelError(
            f"{named(file.path)} is one of {shown(split.value)} files of a model; join them first, with "
            "llama-gguf-split --merge FIRST_FILE JOINED_FILE"
        )
    reason = ""
    if file.setting("decoder_block_count") is not None or any(name.startswith("dec.blk.") for name in file.tensors):
        reason = "has two stacks of layers, an encoder and a decoder"
    elif type(depth) is not int or depth < 1:
        reason = f"has an invalid {file.architecture}.{COUNT} = {shown(depth)}"
    elif not 0 <= _predicting(file) < depth:
        reason = f"has {PREDICTING} = {_predicting(file):,} for {depth:,} layers"
    if reason:
        raise UnsupportedModelError(f"{named(file.path)} {reason}; use the model from which it was converted")
    numbers = {int(match[1]) for match in map(_BLOCK.fullmatch, file.tensors) if match}
    if len(numbers) != depth or max(numbers) != depth - 1:
        raise CheckpointError(
            f"{named(file.path)} has {depth:,} layers, but tensors (blk.N) of {len(numbers):,}; {CONVERT_AGAIN}"
        )
    return depth - _predicting(file)


def _predicting(file: GGUFFile) -> int:
    count = file.setting(PREDICTING)
    return count if type(count) is int else 0


def layer_bytes(file: GGUFFile) -> list[int]:
    """Return the number of bytes of each layer's tensors."""
    sizes = [0] * depth_of(file)
    for name, tensor in file.tensors.items():
        match = _BLOCK.fullmatch(name)
        if match is not None and int(match[1]) < len(sizes):
            sizes[int(match[1])] += tensor.size
    return sizes


def planned_file(file: GGUFFile, order: Sequence[int]) -> PlannedFile:
    """Reorder the layers of the file as in `order`, whose numbers must be below `depth_of(file)`.

    Layers for multi-token prediction stay at the end. Raises `UnsupportedModelError` if the metadata cannot express the
    plan.
    """
    depth = depth_of(file)
    if list(order) == list(range(depth)):  # keep the order of its tensors
        return PlannedFile(tuple(file.tensors.items()), {})
    _refuse_order_dependent(file, order, depth)
    whole = [*order, *range(depth, depth + _predicting(file))]
    return PlannedFile(tuple(_tensors(file, whole)), dict(_changed_entries(file, order, depth, whole)))


def _unsupported(file: GGUFFile, reason: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{named(file.path)} cannot be written with its layers in another order: {reason}; run the plan on the model "
        "from which it was converted"
    )


def _tensors(file: GGUFFile, order: Sequence[int]) -> Iterator[tuple[str, GGUFTensor]]:
    layers: dict[int, list[tuple[str, GGUFTensor]]] = {}
    behind: list[tuple[str, GGUFTensor]] = []
    for name, tensor in file.tensors.items():
        match = _BLOCK.fullmatch(name)
        if match is not None:
            layers.setdefault(int(match[1]), []).append((match[2], tensor))
        elif layers:
            behind.append((name, tensor))
        else:
            yield name, tensor
    for slot, layer in enumerate(order):
        for rest, tensor in layers[layer]:
            name = f"blk.{slot}.{rest}"
            if len(name.encode()) > MAX_NAME:
                raise PlanError(f"{name} would exceed ggml's limit of {MAX_NAME} bytes")
            yield name, tensor
    yield from behind


def _refuse_order_dependent(file: GGUFFile, order: Sequence[int], depth: int) -> None:
    architecture = file.architecture
    if file.setting("attention.shared_kv_layers") or any(name.startswith("per_layer_") for name in file.tensors):
        raise _unsupported(file, "its layers share keys and values, or read embeddings by their number")
    if f"{architecture}.attention.indexer.types" in file.entries:
        raise _unsupported(file, "its layers read the tokens that an earlier layer selected")
    if architecture in BOUND:
        raise _unsupported(file, BOUND[architecture])
    kind = BY_DEPTH.get(architecture)
    more = (0, _predicting(file))
    if (
        kind is not None
        and file.setting("residual_scale") is None
        and any(kind(depth + behind) != kind(len(order) + behind) for behind in more)
    ):
        raise _unsupported(
            file, f"llama.cpp computes {architecture} differently with {depth} and with {len(order)} layers"
        )
    window, period = file.setting("attention.sliding_window"), PERIODS.get(architecture)
    if period is None:
        # Only the presence of the pattern matters; long arrays have no value here.
        if window and architecture not in ONE_WINDOW and f"{architecture}.{WINDOW_PATTERN}" not in file.entries:
            raise _unsupported(file, "it has a sliding window for some of its layers, but does not say which")
        return
    if not window and architecture in ONLY_WITH_WINDOW:
        return
    # Kinds differ in their tensors, so releases that ignore the setting cannot open the file.
    if any(
        f"{architecture}.{name}" in file.entries for name in ("full_attention_interval", "attention.recurrent_layers")
    ):
        return
    if not _keeps_kinds(order, _kind(architecture, WINDOW_PATTERN), period, period):
        raise _unsupported(
            file,
            f"llama.cpp assigns another kind to one layer in {period} of {architecture} by its number, which the plan "
            "does not preserve",
        )


def _kind(architecture: str, name: str) -> Callable[[int, int], object]:
    if name == WINDOW_PATTERN and architecture in FIRST_OF_EACH:
        return lambda layer, period: layer % period == 0
    return KINDS[name]


def _keeps_kinds(order: Sequence[int], kind: Callable[[int, int], object], own: int, new: int) -> bool:
    return all((kind(slot, new) if new else 0) == (kind(layer, own) if own else 0) for slot, layer in enumerate(order))


def _changed_entries(
    file: GGUFFile, order: Sequence[int], depth: int, whole: Sequence[int]
) -> Iterator[tuple[str, bytes]]:
    orders = {depth: order, depth + _predicting(file): whole}
    prefix = f"{file.architecture}."
    for key, entry in file.entries.items():
        name = key.removeprefix(prefix)
        if name == key and not key.startswith(_XIELU):
            continue
        if name == COUNT:
            yield key, _encode_entry(entry, len(whole))
        elif entry.type == ARRAY and entry.element != STRING and not _NOT_PER_LAYER.search(name):
            if entry.length in orders and entry.value is not None:
                yield key, _encode_entry(entry, [entry.value[layer] for layer in orders[entry.length]])
            elif _NUMBERS_OF_LAYERS.search(name):
                raise _unsupported(file, f"{shown(key)} has {entry.length} values for {depth} layers")
        elif name in KINDS and type(entry.value) is int:
            yield key, _encode_entry(entry, _fitting_number(file, name, entry.value, order))
        elif type(entry.value) is int and entry.value and name != PREDICTING and _NUMBERS_OF_LAYERS.search(name):
            raise _unsupported(file, f"{shown(key)} = {entry.value} refers to layers by their numbers")


def _fitting_number(file: GGUFFile, name: str, own: int, order: Sequence[int]) -> int:
    for new in (own, *range(1, len(order) + 2), 0):
        if _keeps_kinds(order, _kind(file.architecture, name), own, new):
            return new
    raise _unsupported(
        file,
        f"{file.architecture}.{name} = {own} codes the kinds of layers by their numbers, and no value fits the plan",
    )


def _encode_entry(entry: MetadataEntry, value: Any) -> bytes:
    key = entry.key.encode()
    head = struct.pack(f"<Q{len(key)}sI", len(key), key, entry.type)
    if entry.type != ARRAY or entry.element is None:
        return head + struct.pack(f"<{SCALARS[entry.type]}", value)
    return head + struct.pack(f"<IQ{len(value)}{SCALARS[entry.element]}", entry.element, len(value), *value)
