"""What transformers expects of a configuration's folder, by its own loading (`from_pretrained`) on the device `meta`.

A tensor that is missing, unexpected or of another shape, and was not so in the original model, is an error.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from layerwise.bounded import reason_of
from layerwise.checkpoint.kinds import difference, kinds_of, planned_config
from layerwise.checkpoint.layer_names import UnresolvedNames
from layerwise.checkpoint.proof import quiet_transformers
from layerwise.checkpoint.stored_config import config_text, drop_predicting_layers
from layerwise.data.auto_classes import from_pretrained, on_meta
from layerwise.data.stored_files import Tensors
from layerwise.errors import LayerwiseError, UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack.blocks import block_list, find_blocks
from layerwise.stack.checks.compatibility import refuse_loss_of_a_kind
from layerwise.stack.inputs import example_inputs
from layerwise.stack.load import model_class
from layerwise.stack.per_layer import per_layer_tensors

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
    """The class and the configuration of a checkpoint, before and under a plan; `text` is its `config.json`.

    `has_inputs` says that a batch of inputs can be made up for it.
    """

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
        """Return what transformers expects of the model of `settings`, and of that of the visits `order` of its layers.

        Unless the checkpoint `predicts` further tokens, its configuration counts no layers that do. Raises
        `UnsupportedModel` if no values of the configuration give the layers their kinds, and `UnresolvedNames` if the
        model cannot be built on `meta`.
        """
        plain = {name: value for name, value in settings.items() if name != "quantization_config"}
        try:
            own = CONFIG_MAPPING[settings["model_type"]].from_dict(plain)
            kind: Any = model_class(own, False)
            model = on_meta(kind, own)
            blocks = find_blocks(model, path)
            refuse_loss_of_a_kind(model, blocks, Plan.of(order))
            if tuple(order) != tuple(range(len(block_list(model, blocks)))) and per_layer_tensors(model, blocks):
                raise UnresolvedNames("tensors around its layers hold entries of each of them, which follow the plan")
            config, wanted, positional = planned_config(model, blocks, order)
            kinds = kinds_of(block_list(on_meta(kind, config), blocks), positional)
        except (LayerwiseError, UnresolvedNames):
            raise
        except Exception as error:
            raise UnresolvedNames(reason_of(error)) from error
        unlike = difference(wanted, kinds) if len(wanted) == len(kinds) else f"it would have {len(kinds)} layers"
        if unlike is not None:
            raise UnsupportedModel(
                f"the configuration of {kind.__name__} cannot say what the plan does ({unlike}): no values of its "
                "settings give every layer its kind; run the plan in place with stack.under"
            )
        config._attn_implementation = own._attn_implementation
        if not predicts:
            drop_predicting_layers(config)
        whole = copy.deepcopy(config)
        if "quantization_config" in settings:
            whole.quantization_config = settings["quantization_config"]
        return cls(kind, own, config, config_text(whole), blocks, example_inputs(model) is not None)

    def prove(self, own: Tensors, planned: Tensors, quantized: bool) -> None:
        before, after = self._misfits(self.own, own, quantized), self._misfits(self.config, planned, quantized)
        known = {_template(misfit) for misfit in before}
        new = sorted(misfit for misfit in after if _template(misfit) not in known)
        if new:
            raise UnresolvedNames(
                f"transformers would not load it: {new[0]}" + f", and {len(new) - 1} more" * (len(new) > 1)
            )

    def _misfits(self, config: Any, tensors: Tensors, quantized: bool) -> set[str]:
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
        return {f"{n} is missing" for n in missing} | {f"{n} is left over" for n in unexpected} | shapes | errors


def blocks_path(settings: Mapping[str, Any]) -> str | None:
    """Return the path of the blocks of the model of `settings` that a plan runs, or None if it cannot be built."""
    with suppress(Exception):  # whoever opens the model in memory says why in its own words
        config = CONFIG_MAPPING[settings["model_type"]].from_dict(
            {name: value for name, value in settings.items() if name != "quantization_config"}
        )
        return find_blocks(on_meta(model_class(config, False), config))
    return None


def _template(misfit: str) -> str:
    return re.sub(r"\.\d+(?=[. ]|$)", ".N", misfit)
