"""Check the files of a checkpoint before a model is built: the JSON files, and that the sizes fit the saved tensors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers.initialization import no_init_weights

from layerwise.bounded import named, shortened, shown
from layerwise.data.auto_classes import find_class, from_pretrained
from layerwise.data.model_location import is_gguf
from layerwise.data.stored_files import (
    CONFIG,
    StoredTensor,
    Tensors,
    list_weight_files,
    read_config,
    read_header,
    read_settings,
)
from layerwise.errors import CheckpointError, ModelError, UnsupportedModelError
from layerwise.gguf import CONVERT_AGAIN, GGUFFile, depth_of

_MAX_REASON = 200

MAX_PARTS = 1_000
"""Maximum number of layers or experts in a configuration. If more tensors were saved, their number is the limit."""

SLACK = 2**22
"""A model is refused if it has more than twice as many parameters as were saved, plus this number."""


def check_folder(folder: Path) -> Tensors:
    """List the tensors that transformers would load from `folder`, reading only their headers.

    Raises `CheckpointError` if a file is missing, truncated, malformed, pickled or not in the folder.
    """
    settings = read_config(folder)
    read_settings(folder / "generation_config.json")
    saved = {name: tensor for file in list_weight_files(folder, settings) for name, tensor in read_header(file).items()}
    check_counts(folder, settings, len(saved))
    return saved


def open_config(location: str, revision: str | None = None) -> Any:
    """Read the configuration of a folder, after checking it, or of a hub id. Raise `ModelError` if this fails."""
    folder = Path(location).expanduser()
    if folder.is_dir():
        check_counts(folder, read_config(folder))
    try:
        return from_pretrained("AutoConfig", str(folder), revision=revision)
    except ModelError:
        raise
    except Exception as error:  # transformers raises many types for files, network and configurations
        reason = shortened(" ".join(str(error).split()), _MAX_REASON) or type(error).__name__
        raise CheckpointError(
            f"the configuration of {named(location)} cannot be read ({reason}); pass a folder with a valid {CONFIG}, "
            "or a reachable hub id"
        ) from error


def check_counts(folder: Path, settings: Mapping[str, Any], tensors: int = 0) -> None:
    for key, count in _counts(settings):
        if count > max(tensors, MAX_PARTS):
            limit = f"only {tensors} tensors were saved" if tensors else f"the maximum without weights is {MAX_PARTS:,}"
            raise CheckpointError(
                f"{folder / CONFIG}: {key} is {_number(count)}, but {limit}; correct it, or save the model again"
            )


def _counts(settings: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _counts(value)
        elif isinstance(key, str) and any(word in key for word in ("layers", "n_layer", "experts", "depth")):
            values = value if isinstance(value, list) else [value]
            yield from ((key, each) for each in values if isinstance(each, int))


def check_size(location: str, saved: Tensors, draw: Callable[[], nn.Module]) -> None:
    stored = sum(prod(tensor.shape) for tensor in saved.values())
    numbers = 0
    with suppress(Exception), torch.device("meta"), no_init_weights():
        numbers = numbers_of(draw())
    if numbers > 2 * stored + SLACK:
        source, advice = CONFIG, "correct its sizes (vocab_size, hidden_size and the like), or save the model again"
        if is_gguf(location):
            source, advice = "its metadata", CONVERT_AGAIN
        raise CheckpointError(
            f"{location}: {source} describes a model of {_number(numbers)} parameters, but {_number(stored)} were "
            f"saved; {advice}"
        )


def numbers_of(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def _number(count: int) -> str:
    return f"{count:,}" if abs(count) < 10**18 else "a number of more than 18 digits"


BUFFERS = re.compile(r"(rotary_emb\.inv_freq|\.masked_bias|(^|\.)position_ids|num_batches_tracked)$")
"""Names of tensors that old checkpoints contain, but that models now compute."""

POOLER = "pooler"
"""Part of a base model that only some heads use."""

_MAX_GROUPS, _MAX_TAILS, _MAX_NAME = 6, 10, 200


def check_complete(location: str, model: Any, report: Mapping[str, Any], *, new_head: bool = False) -> None:
    """Raise `CheckpointError` unless every tensor of `model` was loaded, and every saved tensor was used.

    `report` is the loading info of `from_pretrained`. If `new_head`, the head may be missing.
    """
    kind = type(model).__name__
    mismatched = sorted(report["mismatched_keys"])
    if new_head:
        mismatched = [each for each in mismatched if _is_in_base_model(model, each[0])]
    if mismatched:
        name, saved, expected = mismatched[0]
        name = shortened(name, _MAX_NAME)
        more = f" ({len(mismatched)} tensors in all)" if len(mismatched) > 1 else ""
        raise CheckpointError(
            f"{location} has {name} of shape {tuple(saved)}, but {kind} needs {tuple(expected)}{more}; "
            + _advice(location, "correct the sizes in config.json, or save the model again")
        )
    missing = [name for name in report["missing_keys"] if not _may_be_missing(model, name, new_head)]
    if missing:
        advice = "correct num_hidden_layers and architectures in config.json, or save the model again"
        raise CheckpointError(
            f"{location} lacks {_count(missing)} that {kind} needs: {listed(missing)}; they would be random numbers, "
            f"so {_advice(location, advice)}"
        )
    unused = [name for name in report["unexpected_keys"] if not _may_be_unused(model, name)]
    if unused:
        raise CheckpointError(
            f"{location} has {_count(unused)} that {kind} does not use: {listed(unused)}; correct num_hidden_layers "
            "and architectures in config.json, or remove them from the file"
        )


def _advice(location: str, of_folder: str) -> str:
    return CONVERT_AGAIN if is_gguf(location) else of_folder


def check_types(location: str, model: nn.Module, saved: Tensors) -> None:
    names = {name for name, _ in model.named_parameters()}
    wrong = [name for name in saved if name in names and not saved[name].dtype.startswith(("F", "BF"))]
    if wrong:
        raise CheckpointError(
            f"{location} has {_count(wrong)} of integers ({saved[wrong[0]].dtype}) where {type(model).__name__} has "
            f"weights: {listed(wrong)}; save them as float32, float16 or bfloat16"
        )


def _may_be_missing(model: Any, name: str, new_head: bool) -> bool:
    if model.base_model is model:
        return name.startswith(f"{POOLER}.")
    return new_head and (not _is_in_base_model(model, name) or f".{POOLER}." in f".{name}")


def _may_be_unused(model: Any, name: str) -> bool:
    if BUFFERS.search(name) or f".{POOLER}." in f".{name}":
        return True
    # Another task's head is a module that this model lacks, unlike a bias of its own head.
    return not _is_in_base_model(model, name) and name.rpartition(".")[0] not in dict(model.named_modules())


def _is_in_base_model(model: Any, name: str) -> bool:
    prefix = f"{model.base_model_prefix}."
    if model.base_model is not model and name.startswith(prefix):
        return True
    parts = {child for child, _ in model.base_model.named_children()}
    return name.removeprefix(prefix).partition(".")[0] in parts


def _count(names: Collection[str]) -> str:
    return f"{len(names):,} tensor{'s' * (len(names) != 1)}"


def listed(names: Iterable[str]) -> str:
    """Format tensor names, combining those that several layers have.

    >>> listed(["h.1.a.weight", "h.2.a.weight", "h.1.b", "h.2.b", "norm.weight"])
    'norm.weight, h.1-2.{a.weight, b}'
    """
    plain: list[str] = []
    layers: dict[tuple[str, str], set[int]] = {}
    for name in sorted(shortened(name, _MAX_NAME) for name in names):
        match = re.match(r"(.*?\.)(\d+)\.(.+)", name)
        if match is None:
            plain.append(name)
        else:
            layers.setdefault((match[1], re.sub(r"\b\d+\b", "*", match[3])), set()).add(int(match[2]))
    together: dict[tuple[str, str], list[str]] = {}
    for (prefix, tail), numbers in layers.items():
        together.setdefault((prefix, _ranges(numbers)), []).append(tail)
    for (prefix, span), tails in together.items():
        plain.append(f"{prefix}{span}.{tails[0] if len(tails) == 1 else f'{{{_first_words(tails, _MAX_TAILS)}}}'}")
    return _first_words(plain, _MAX_GROUPS)


def _first_words(words: list[str], most: int) -> str:
    more = [f"and {len(words) - most} more"] if len(words) > most else []
    return ", ".join([*words[:most], *more])


def _ranges(numbers: Collection[int]) -> str:
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def check_gguf(path: Path) -> GGUFFile:
    """Check that transformers can read a GGUF file.

    Raises `CheckpointError` if it is malformed, and `UnsupportedModelError` if it has unknown types. Requires gguf.
    """
    file = GGUFFile.open(path)
    depth_of(file)
    _refuse_numbers(file)
    if find_spec("gguf") is None:
        raise ModelError(f"reading {named(path)} requires the package gguf: pip install 'layerwise[gguf]'")
    numbers = {tensor.number for tensor in file.tensors.values()}
    unreadable = sorted(number for number in numbers if not _is_readable(number))
    if unreadable:
        names = {tensor.number: tensor.type.name for tensor in file.tensors.values()}
        raise UnsupportedModelError(
            f"{named(path)} has tensors of type {', '.join(names[each] for each in unreadable)}, which transformers "
            "cannot read; use a file of another type, such as Q8_0 or Q4_K_M"
        )
    return file


def _refuse_numbers(file: GGUFFile) -> None:
    for key, entry in file.entries.items():
        value = entry.value
        if not isinstance(value, float):
            continue
        wrong = not math.isfinite(value) or (key.endswith("_epsilon") and not 0 <= value < 1)
        if wrong or (key.endswith("rope.freq_base") and value <= 0):
            raise CheckpointError(f"{named(file.path)} has an invalid {shown(key)} = {value}; {CONVERT_AGAIN}")


def stored_in(file: GGUFFile) -> Tensors:
    return {
        name: StoredTensor(each.type.name, tuple(reversed(each.shape)), file.path, each.begin, each.end)
        for name, each in file.tensors.items()
    }


def _is_readable(number: int) -> bool:
    import gguf

    kind = gguf.GGMLQuantizationType(number)
    _, size = gguf.GGML_QUANT_SIZES[kind]
    try:
        gguf.dequantize(np.zeros((1, size), np.uint8), kind)
    except NotImplementedError:
        return False
    return True


def dense_loading() -> dict[str, Any]:
    kind = find_class("GgufConfig")  # as of transformers 5.2x
    return {} if kind is None else {"quantization_config": kind(dequantize=True)}


def forget_quantization(model: Any) -> None:
    vars(model.config).pop("quantization_config", None)
    vars(model).pop("hf_quantizer", None)


def refusal(path: str, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{named(path)} could not be loaded: {reason.rstrip('.')}; use the folder of the model from which it was "
        "converted"
    )
