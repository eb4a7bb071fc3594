"""Find a configuration under which every layer of a plan keeps its kind, such as sliding-window attention.

Kinds are read from models built on the `meta` device.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from layerwise.bounded import describe_error
from layerwise.checkpoint.layer_names import UnresolvedNamesError
from layerwise.checkpoint.proof import quiet_transformers
from layerwise.checkpoint.stored_config import INDEX_CODED, config_text, drop_predicting_layers, rebuild_config
from layerwise.data.auto_classes import from_pretrained, on_meta
from layerwise.data.stored_files import Tensors
from layerwise.errors import LayerwiseError, UnsupportedModelError
from layerwise.plan import Plan
from layerwise.stack.blocks import block_list, find_blocks
from layerwise.stack.checks.compatibility import refuse_loss_of_a_kind
from layerwise.stack.executors.clone import INDEX_NAMES
from layerwise.stack.executors.config_view import configuration_in_order
from layerwise.stack.inputs import example_inputs
from layerwise.stack.load import model_class
from layerwise.stack.per_layer import per_layer_tensors

Kind: TypeAlias = frozenset[tuple[str, ...]]
"""Description of a block for comparisons: module classes, attributes and tensor shapes, as tuples of texts."""

MAX_DRAFTS = 2_000
"""Maximum number of models built on `meta` to find the values of one group of settings."""

# Attributes that matter only in training.
_NO_KIND = re.compile(r"^_|drop|^training$|^config$")


def positional_traits(blocks: Sequence[nn.Module]) -> frozenset[tuple[str, str]]:
    counting = [
        {
            (path, name)
            for path, module in block.named_modules()
            for name, value in vars(module).items()
            if type(value) is int and value in (position, position + 1)
        }
        for position, block in enumerate(blocks)
    ]
    return frozenset.intersection(*map(frozenset, counting)) if len(counting) > 1 else frozenset()


def kinds_of(blocks: Iterable[nn.Module], positional: frozenset[tuple[str, str]]) -> list[Kind]:
    return [frozenset(trait for trait in _traits(block) if trait[:2] not in positional) for block in blocks]


def _traits(block: nn.Module) -> Iterator[tuple[str, ...]]:
    for path, module in block.named_modules():
        if "drop" in path:
            continue
        yield path, type(module).__name__
        for name, value in vars(module).items():
            if name not in INDEX_NAMES and _NO_KIND.search(name) is None and _is_plain(value):
                yield path, name, repr(value)
    for name, tensor in (*block.named_parameters(), *block.named_buffers()):
        yield name, "shape", repr(tuple(tensor.shape))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def difference(wanted: Sequence[Kind], kinds: Sequence[Kind]) -> str | None:
    for slot, (want, have) in enumerate(zip(wanted, kinds, strict=True)):
        if want != have:
            first = min(want - have, default=None) or min(have - want)
            there = next((trait for trait in have if trait[:-1] == first[:-1]), None)
            what = " ".join(part for part in first[:-1] if part) or "the block"
            return f"in slot {slot}, {what} would be {there[-1] if there else 'missing'} instead of {first[-1]}"
    return None


def planned_config(model: Any, path: str, order: Sequence[int]) -> tuple[Any, list[Kind], frozenset[tuple[str, str]]]:
    """Return the configuration for the layers in `order`, their kinds, and the attributes that depend on position.

    Settings that define the kind of a layer by its number are changed if necessary: one group of related settings
    (`attn_layer_period`, `attn_layer_offset`) after the other, then all together. If several values fit equally well,
    the model's value is kept, or else the smallest is used.
    """
    kind, blocks = type(model), list(block_list(model, path))
    positional = positional_traits(blocks)
    kinds = kinds_of(blocks, positional)
    wanted = [kinds[layer] for layer in order]
    config = rebuild_config(
        configuration_in_order(model, path, order, len(blocks)), type(model.config), order, len(blocks)
    )

    def fit(trial: Any) -> int:
        with suppress(Exception):  # a class may refuse a configuration in any way
            kinds = kinds_of(block_list(on_meta(kind, trial), path), positional)
            return sum(len(want & have) for want, have in zip(wanted, kinds, strict=True))
        return -1

    most = sum(map(len, wanted))
    best, score = config, fit(config)
    groups = _groups(_owner(config))
    # One group after another, then all together.
    for names in [*groups, [name for group in groups for name in group]] if score < most else ():
        domains = [_values(getattr(_owner(config), name), wanted, order) for name in names]
        for values in itertools.islice(itertools.product(*domains), MAX_DRAFTS):
            trial = copy.deepcopy(best)
            vars(_owner(trial)).update(zip(names, values, strict=True))
            if (now := fit(trial)) > score:
                best, score = trial, now
            if score == most:
                return best, wanted, positional
    return best if score == most else config, wanted, positional


def _owner(config: Any) -> Any:
    return config.get_text_config()


def _groups(config: Any) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for name, value in vars(config).items():
        numbers = value if isinstance(value, list | tuple) else [value]
        if INDEX_CODED.search(name) and all(type(each) is int for each in numbers):
            groups.setdefault(re.sub(r"_(period|offset|start\w*|end\w*)$", "", name), []).append(name)
    return list(groups.values())


def _values(own: Any, wanted: Sequence[Kind], order: Sequence[int]) -> list[Any]:
    slots = range(len(wanted))
    if type(own) is int:
        return [own, *(number for number in range(len(wanted) + 1) if number != own)]
    lists = [[slot for slot in slots if order[slot] in own], []]
    for kind in dict.fromkeys(wanted):
        lists.append([slot for slot in slots if wanted[slot] == kind])
        lists.append([slot for slot in slots if wanted[slot] != kind])
    return [type(own)(each) for each in lists]


_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


@dataclass(frozen=True)
class Expectation:
    """The transformers class of a model (`kind`), its `own` configuration, and its `config` under a plan."""

    kind: Any
    own: Any
    config: Any
    text: str
    blocks: str
    has_inputs: bool

    @classmethod
    def of(
        cls, settings: Mapping[str, Any], order: Sequence[int], path: str | None, predicts: bool = True
    ) -> Expectation:
        """Build the expectation for the model of `settings` with its layers in `order`.

        Unless the checkpoint `predicts` several tokens, the configuration has no layers for multi-token prediction.
        Raises `UnsupportedModelError` if no configuration lets the layers keep their kinds, and `UnresolvedNamesError`
        if the model cannot be built on `meta`.
        """
        plain = {name: value for name, value in settings.items() if name != "quantization_config"}
        try:
            own = CONFIG_MAPPING[settings["model_type"]].from_dict(plain)
            kind: Any = model_class(own, False)
            model = on_meta(kind, own)
            blocks = find_blocks(model, path)
            refuse_loss_of_a_kind(model, blocks, Plan.of(order))
            if tuple(order) != tuple(range(len(block_list(model, blocks)))) and per_layer_tensors(model, blocks):
                raise UnresolvedNamesError(
                    "tensors outside its layers have one entry per layer, which must follow the plan"
                )
            config, wanted, positional = planned_config(model, blocks, order)
            kinds = kinds_of(block_list(on_meta(kind, config), blocks), positional)
        except (LayerwiseError, UnresolvedNamesError):
            raise
        except Exception as error:
            raise UnresolvedNamesError(describe_error(error)) from error
        unlike = difference(wanted, kinds) if len(wanted) == len(kinds) else f"it would have {len(kinds)} layers"
        if unlike is not None:
            raise UnsupportedModelError(
                f"the configuration of {kind.__name__} cannot express the plan ({unlike}); run it in place with "
                "stack.under"
            )
        config._attn_implementation = own._attn_implementation
        if not predicts:
            drop_predicting_layers(config)
        full = copy.deepcopy(config)
        if "quantization_config" in settings:
            full.quantization_config = settings["quantization_config"]
        return cls(kind, own, config, config_text(full), blocks, example_inputs(model) is not None)

    def prove(self, own: Tensors, planned: Tensors, quantized: bool) -> None:
        before, after = (
            self._mismatched_tensors(self.own, own, quantized),
            self._mismatched_tensors(self.config, planned, quantized),
        )
        expected = {_template(misfit) for misfit in before}
        new = sorted(misfit for misfit in after if _template(misfit) not in expected)
        if new:
            raise UnresolvedNamesError(
                f"transformers would not load it: {new[0]}" + f", and {len(new) - 1} more" * (len(new) > 1)
            )

    def _mismatched_tensors(self, config: Any, tensors: Tensors, quantized: bool) -> set[str]:
        state = {
            name: torch.empty(each.shape, dtype=_DTYPES.get(each.dtype, torch.float32), device="meta")
            for name, each in tensors.items()
        }
        with quiet_transformers():
            model, report = from_pretrained(
                self.kind,
                None,
                config=config,
                state_dict=state,
                device_map={"": "meta"},
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
        missing, unexpected = set(report["missing_keys"]), set(report["unexpected_keys"])
        shapes = {f"{name} is {tuple(have)}, not {tuple(want)}" for name, have, want in report["mismatched_keys"]}
        if quantized:
            stored = {name.rpartition(".")[0] for name in tensors}
            modules = {name for name, _ in model.named_modules()}
            missing = {name for name in missing if name.rpartition(".")[0] not in stored}
            unexpected = {name for name in unexpected if name.rpartition(".")[0] not in modules}
            shapes = set()
        errors = {f"an error: {text}" for text in report["error_msgs"]}
        return {f"{n} is missing" for n in missing} | {f"{n} is unexpected" for n in unexpected} | shapes | errors


def blocks_path(settings: Mapping[str, Any]) -> str | None:
    with suppress(Exception):  # opening the model in memory reports the reason
        config = CONFIG_MAPPING[settings["model_type"]].from_dict(
            {name: value for name, value in settings.items() if name != "quantization_config"}
        )
        return find_blocks(on_meta(model_class(config, False), config))
    return None


def _template(misfit: str) -> str:
    return re.sub(r"\.\d+(?=[. ]|$)", ".N", misfit)
