"""Whether a checkpoint fits its model: transformers initializes missing tensors and ignores unexpected ones.

Tied weights, buffers of old files and unneeded heads may differ. Everything else is refused, by name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch import nn

from layerwise.bounded import shortened
from layerwise.data.model_location import is_gguf
from layerwise.data.stored_files import Tensors
from layerwise.errors import CheckpointError
from layerwise.gguf import CONVERT_AGAIN

BUFFERS = re.compile(r"(rotary_emb\.inv_freq|\.masked_bias|(^|\.)position_ids|num_batches_tracked)$")
"""What was once saved and is now computed. transformers knows more of them, by class, and reports none of those."""

POOLER = "pooler"
"""What a base model may have beside its layers for other heads than the one at hand: no hidden state depends on it."""

_GROUPS, _TAILS = 6, 10  # of what an error names
_NAMED = 200  # characters of a name


def check_complete(location: str, model: Any, report: Mapping[str, Any], *, new_head: bool = False) -> None:
    """Raise `CheckpointError` unless every tensor of `model` was loaded, and every saved one has a place.

    `report` is what `from_pretrained` gives with `output_loading_info`. With `new_head` what is not of the base model
    is drawn on purpose.
    """
    kind = type(model).__name__
    mismatched = sorted(report["mismatched_keys"])
    if new_head:
        mismatched = [each for each in mismatched if _inside(model, each[0])]
    if mismatched:
        name, saved, wanted = mismatched[0]
        name = shortened(name, _NAMED)
        more = f" ({len(mismatched)} tensors in all)" if len(mismatched) > 1 else ""
        raise CheckpointError(
            f"{location} holds {name} of shape {tuple(saved)}, and {kind} needs {tuple(wanted)}{more}; "
            + _advice(location, "correct the sizes in config.json, or save the model again")
        )
    missing = [name for name in report["missing_keys"] if not _may_be_missing(model, name, new_head)]
    if missing:
        advice = "correct num_hidden_layers and architectures in config.json, or save the model again"
        raise CheckpointError(
            f"{location} lacks {_count(missing)} that {kind} needs: {listed(missing)}; they would be random numbers, "
            f"so {_advice(location, advice)}"
        )
    left = [name for name in report["unexpected_keys"] if not _may_be_left(model, name)]
    if left:
        raise CheckpointError(
            f"{location} holds {_count(left)} for which {kind} has no place: {listed(left)}; the model would run "
            "without them, so correct num_hidden_layers and architectures in config.json, or remove them from the file"
        )


def _advice(location: str, of_folder: str) -> str:
    return CONVERT_AGAIN if is_gguf(location) else of_folder


def check_types(location: str, model: nn.Module, saved: Tensors) -> None:
    names = {name for name, _ in model.named_parameters()}
    wrong = [name for name in saved if name in names and not saved[name].dtype.startswith(("F", "BF"))]
    if wrong:
        raise CheckpointError(
            f"{location} holds {_count(wrong)} of whole numbers ({saved[wrong[0]].dtype}) where {type(model).__name__} "
            f"has weights: {listed(wrong)}; save them as float32, float16 or bfloat16"
        )


def _may_be_missing(model: Any, name: str, new_head: bool) -> bool:
    if model.base_model is model:
        return name.startswith(f"{POOLER}.")
    return new_head and (not _inside(model, name) or f".{POOLER}." in f".{name}")


def _may_be_left(model: Any, name: str) -> bool:
    if BUFFERS.search(name) or f".{POOLER}." in f".{name}":
        return True
    # Another task's head is a module that this model does not have; a bias of its own head is not.
    return not _inside(model, name) and name.rpartition(".")[0] not in dict(model.named_modules())


def _inside(model: Any, name: str) -> bool:
    prefix = f"{model.base_model_prefix}."
    if model.base_model is not model and name.startswith(prefix):
        return True
    parts = {child for child, _ in model.base_model.named_children()}
    return name.removeprefix(prefix).partition(".")[0] in parts


def _count(names: Collection[str]) -> str:
    return f"{len(names):,} tensor{'s' * (len(names) != 1)}"


def listed(names: Iterable[str]) -> str:
    """The names of tensors, those of several layers once.

    >>> listed(["h.1.a.weight", "h.2.a.weight", "h.1.b", "h.2.b", "norm.weight"])
    'norm.weight, h.1-2.{a.weight, b}'
    """
    plain: list[str] = []
    layers: dict[tuple[str, str], set[int]] = {}
    for name in sorted(shortened(name, _NAMED) for name in names):
        match = re.match(r"(.*?\.)(\d+)\.(.+)", name)
        if match is None:
            plain.append(name)
        else:
            layers.setdefault((match[1], re.sub(r"\b\d+\b", "*", match[3])), set()).add(int(match[2]))
    together: dict[tuple[str, str], list[str]] = {}
    for (prefix, tail), numbers in layers.items():
        together.setdefault((prefix, _ranges(numbers)), []).append(tail)
    for (prefix, span), tails in together.items():
        plain.append(f"{prefix}{span}.{tails[0] if len(tails) == 1 else f'{{{_some(tails, _TAILS)}}}'}")
    return _some(plain, _GROUPS)


def _some(words: list[str], most: int) -> str:
    more = [f"and {len(words) - most} more"] if len(words) > most else []
    return ", ".join([*words[:most], *more])


def _ranges(numbers: Collection[int]) -> str:
    """Whole numbers, those that follow one another as a range.

    >>> _ranges({4, 5, 6, 9})
    '4-6,9'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
