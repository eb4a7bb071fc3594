"""Load a model as a `Stack`. Pickled weights are refused, and remote code runs only on request."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import PreTrainedModel, __version__

from layerwise.bounded import named, shortened, shown
from layerwise.data.auto_classes import (
    find_class,
    find_tokenizer_class,
    from_config,
    from_pretrained,
    list_model_classes,
    without_retries,
)
from layerwise.data.model_location import EMBEDDED, is_gguf, location_of
from layerwise.data.stored_files import Tensors
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.errors import CheckpointError, DataError, ModelError, UnsupportedModelError, near_matches
from layerwise.gguf import GGUFFile
from layerwise.plan import Plan
from layerwise.stack.adapters import base_of, merge_adapter
from layerwise.stack.blocks import find_blocks
from layerwise.stack.checks.checkpoint_files import (
    check_complete,
    check_folder,
    check_gguf,
    check_size,
    check_types,
    forget_quantization,
    refusal,
    stored_in,
)
from layerwise.stack.checks.compatibility import runs_in_place
from layerwise.stack.checks.forward_trace import StepwiseError, UnfitInputsError
from layerwise.stack.configuration import OWN_TYPES, setting, settings_of
from layerwise.stack.inputs import example_batches, use_examples
from layerwise.stack.per_layer import per_layer_tensors
from layerwise.stack.quantization import plain_tensors
from layerwise.stack.stack import ModelOrigin, Stack
from layerwise.stack.streaming.files import gguf_config
from layerwise.stack.streaming.opening import load_gguf, load_spread, load_with_layers_on_disk
from layerwise.stack.streaming.resident import ResidentLayers, stored_parameter

# Model types whose blocks only look independent.
REFUSED_TYPES = {
    "xlnet": "its blocks carry a second stream next to the hidden state, and keep memories by position",
}

# Submodules that training may add to a model and that its layers then require.
ADDED_PARTS = {
    "layer_positions": "an encoding of their positions",
    "layer_wiring": "learned weights of what each layer reads",
}

DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")
_LOCATION_KEYS = frozenset({"_name_or_path", "_commit_hash", "transformers_version"})
_LOCATIONS = "pass a folder with config.json and model.safetensors, a reachable hub id, or `demo`"

DTYPES = ("auto", "stored", "float32", "float16", "bfloat16", "float64")


def load(
    model: str | Path | nn.Module,
    *,
    layers: str | None = None,
    tokenizer: Any | None = None,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    revision: str | None = None,
    trust_remote_code: bool = False,
    adding: tuple[str, ...] = (),
    resident_layers: int | None = None,
    device_map: str | Mapping[str, Any] | None = None,
) -> Stack:
    """Load a model as a `Stack`.

    Args:
        model: Hub id, folder, GGUF file, `demo`, or a `torch.nn.Module`, which is not copied. A peft adapter is merged
            into its base model. A compact checkpoint runs its plan until `stack.leave()`.
        layers: Dotted path of the list of blocks in the model, if it cannot be found automatically.
        tokenizer: Tokenizer to use instead of the checkpoint's.
        device: Device. `auto` is the accelerator if there is one.
        dtype: Weight dtype. `stored` is the checkpoint's. `auto` is the same, but float32 instead of a half type on a
            CPU.
        revision: Revision on the hub.
        trust_remote_code: Whether to run code from the checkpoint.
        adding: Names of modules that you add to the model yourself. Checkpoints with other added modules are refused.
        resident_layers: Maximum number of layers in memory. Others are read from disk when they run.
        device_map: Device map of accelerate, which spreads the model over devices, CPU and disk.

    Raises:
        CheckpointError: If files cannot be read.
        UnsupportedModelError: If the model cannot run plans.

    >>> stack = load("demo")
    >>> stack.depth
    12
    """
    if isinstance(model, nn.Module):
        if resident_layers is not None:
            raise ModelError("resident_layers requires a folder or hub id, got a module, which is already in memory")
        config = getattr(model, "config", None)
        name = str(setting(config, "_name_or_path") or type(model).__name__)
        return _inspected_stack(model, layers, tokenizer, ModelOrigin(name, setting(config, "_commit_hash")))
    name = str(model)
    location = location_of(name)
    base = base_of(location)
    opening = _Opening(
        location if base is None else location_of(base),
        str(device),
        str(dtype).removeprefix("torch."),
        revision,
        trust_remote_code,
        adding,
        layers,
        resident_layers,
        device_map,
    )
    with without_retries(location):
        module, resident = opening.open()
        if base is not None:
            module = merge_adapter(module, location)
        for folder in dict.fromkeys((location, opening.location)):
            tokenizer = tokenizer or _tokenizer(module, folder, revision, trust_remote_code)
    source = ModelOrigin(name, getattr(module.config, "_commit_hash", None) or revision, trust_remote_code)
    stack = _inspected_stack(module, layers, tokenizer, source, resident)
    record = setting(module.config, "layerwise")
    if isinstance(record, dict):
        stack.enter(_plan_of(name, record))
    return stack


def _inspected_stack(
    module: nn.Module,
    layers: str | None,
    tokenizer: Any | None,
    source: ModelOrigin,
    resident: ResidentLayers | None = None,
) -> Stack:
    kind = setting(getattr(module, "config", None), "model_type")
    reason = REFUSED_TYPES.get(kind) if isinstance(kind, str) else None
    if reason is not None:
        raise UnsupportedModelError(f"{type(module).__name__} cannot run plans: {reason}")
    stack = Stack(module, find_blocks(module, layers), tokenizer=tokenizer, source=source, resident=resident)
    _inspect_on_examples(stack)
    return stack


def _inspect_on_examples(stack: Stack) -> None:
    for number, inputs in enumerate(example_batches(stack.model)):
        try:
            stack.inspect(**inputs)
        except UnfitInputsError:  # the caller must provide inputs
            use_examples(stack.model, None)
        except StepwiseError:
            # A part after a tower may read recorded states, which only plans in place have.
            reads_all = {"input_ids", "pixel_values"} <= set(inputs) or per_layer_tensors(stack.model, stack.path)
            if not (reads_all and runs_in_place(stack, inputs)):
                raise
            use_examples(stack.model, number)
            return
        else:
            use_examples(stack.model, number)
            return


def _plan_of(name: str, record: Mapping[str, Any]) -> Plan:
    plan = record.get("plan")
    if not isinstance(plan, str):
        raise CheckpointError(
            f"{name} has no plan in the entry `layerwise` of its configuration ({shown(record)}); save it again with "
            "layerwise save --compact"
        )
    return Plan.parse(plan)


def weight_hash(model: nn.Module) -> str:
    """Return the SHA-256 hash of a model: its class, configuration, and saved tensors."""
    digest = hashlib.sha256(type(model).__name__.encode())
    settings = settings_of(getattr(model, "config", None))
    if settings:
        # The location and version do not change the model.
        written = {name: value for name, value in settings.items() if name not in _LOCATION_KEYS}
        digest.update(json.dumps(written, sort_keys=True, default=_stable_text).encode())
    _add_tensors(digest, model)
    return digest.hexdigest()


def _stable_text(value: Any) -> Any:
    # The default repr of an object contains its address.
    return settings_of(value) if repr(value) == object.__repr__(value) else str(value)


def _add_tensors(digest: Any, model: nn.Module) -> None:
    for name, tensor in sorted(model.state_dict().items()):
        if not isinstance(tensor, torch.Tensor):  # extra state of a quantized module
            digest.update(f"{name} {tensor}\n".encode())
            continue
        if tensor.is_meta:  # its layer is on the disk
            tensor = stored_parameter(model, name)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        for part in plain_tensors(tensor.detach()):
            flat = part.cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy() if flat.numel() else b"")


def resolve_device(device: str) -> torch.device:
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if device == "auto":
        return accelerator or torch.device("cpu")
    kind = device.partition(":")[0]
    if kind != "cpu" and (accelerator is None or accelerator.type != kind):
        if kind not in DEVICES:
            raise ModelError(f"unknown device {device!r}; {near_matches(kind, DEVICES)}")
        raise ModelError(
            f"device {device!r} is not available: this machine has {accelerator or 'only a CPU'}; use --device auto"
        )
    try:
        return torch.device(device)
    except RuntimeError as error:
        raise ModelError(f"unknown device {device!r}; write {kind}, or {kind}:0 for the first of several") from error


@dataclass(frozen=True)
class _Opening:
    location: str
    device: str
    dtype: str
    revision: str | None
    trust_remote_code: bool
    adding: tuple[str, ...]
    layers: str | None
    resident_layers: int | None
    device_map: str | Mapping[str, Any] | None

    def open(self) -> tuple[PreTrainedModel, ResidentLayers | None]:
        where = resolve_device(self.device)
        if self.dtype not in DTYPES:
            raise ModelError(f"unknown dtype {self.dtype!r}; {near_matches(self.dtype, DTYPES)}")
        file = check_gguf(Path(self.location)) if is_gguf(self.location) else None
        saved = _stored(self.location) if file is None else stored_in(file)
        if file is not None and self.device_map is not None:
            raise UnsupportedModelError(
                f"{named(self.location)} is a GGUF file, which transformers cannot spread over devices and disk; use "
                "--resident-layers instead of --device-map"
            )
        offloaded = None
        try:
            kind, config = self._kind(saved, file)
            load = partial(self._load, kind, config)
            quantized = _is_quantized(config)
            if self.resident_layers is not None:
                self._refuse_streaming(quantized)
            if file is not None:
                dtype = torch.float32 if self.dtype in ("auto", "stored") else getattr(torch, self.dtype)
                loaded, report, offloaded = load_gguf(
                    file,
                    partial(self._build_random, kind, config),
                    self.layers,
                    partial(load, dtype=dtype),
                    dtype,
                    by_layer=self.resident_layers is not None,
                )
            elif self.device_map is not None:
                loaded, report = load_spread(self.device_map, load)
            elif quantized:
                loaded, report = load(device_map={"": str(where)})
            elif self.resident_layers is None:
                loaded, report = load()
            else:
                loaded, report, offloaded = load_with_layers_on_disk(
                    partial(self._build_random, kind, config), self.layers, where, load
                )
        except ModelError:
            raise
        except Exception as error:  # transformers raises many types for files, network and configurations
            raise _explain(self.location, error) from error
        _refuse_lost_parts(self.location, report, self.adding)
        check_complete(self.location, loaded, report)
        module = cast(PreTrainedModel, loaded)
        if file is not None:
            forget_quantization(module)
        elif saved is not None and not quantized:
            check_types(self.location, loaded, saved)
        if quantized or self.device_map is not None:
            return module.eval(), None
        if self.dtype == "auto" and where.type == "cpu" and module.dtype in (torch.float16, torch.bfloat16):
            module = module.float()
        if offloaded is None or self.resident_layers is None:
            return module.to(where).eval(), None
        return module.eval(), offloaded.residents(module, self.resident_layers, where)

    def _refuse_streaming(self, quantized: bool) -> None:
        if quantized:
            raise UnsupportedModelError(
                f"{self.location} is quantized, so its layers cannot be read one by one; load it without "
                "--resident-layers"
            )
        if self.device_map is not None:
            raise ModelError("--resident-layers and --device-map are mutually exclusive; use one of them")

    def _options(self) -> dict[str, Any]:
        return {"revision": self.revision, "trust_remote_code": self.trust_remote_code}

    def _kind(self, saved: Tensors | None, file: GGUFFile | None) -> tuple[Any, Any]:
        config = from_pretrained("AutoConfig", self.location, **self._options()) if file is None else gguf_config(file)
        kind = model_class(config, self.trust_remote_code)
        if kind is None:
            raise ModelError(f"transformers {__version__} has no model for the configuration of {self.location}")
        if saved is not None and not _is_quantized(config):
            check_size(self.location, saved, partial(self._build_random, kind, config))
        return kind, config

    def _build_random(self, kind: Any, config: Any) -> nn.Module:
        return from_config(kind, config, trust_remote_code=self.trust_remote_code)

    def _load(self, kind: Any, config: Any, **placed: Any) -> Any:
        dtype = "auto" if self.dtype in ("auto", "stored") else getattr(torch, self.dtype)
        location = None if "state_dict" in placed else self.location
        return from_pretrained(
            kind,
            location,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            config=config,
            **{"dtype": dtype, **self._options(), **placed},
        )


def _stored(location: str) -> Tensors | None:
    return check_folder(Path(location)) if Path(location).is_dir() else None


def _is_quantized(config: Any) -> bool:
    return getattr(config, "quantization_config", None) is not None


def model_class(config: Any, trust_remote_code: bool) -> Any | None:
    """Return the class that `architectures` in the configuration names, or `AutoModel` if it is unknown.

    With `trust_remote_code`, a name that ends in `ForCausalLM` or `ForMaskedLM` gives the auto class for this task.
    Raises `CheckpointError` if the class does not fit the configuration.
    """
    for name in getattr(config, "architectures", None) or ():
        kind = find_class(name) or _registered(name, config)
        if kind is not None:
            _check_class(name, kind, config)
            return kind
        automatic = {"ForCausalLM": "AutoModelForCausalLM", "ForMaskedLM": "AutoModelForMaskedLM"}
        for suffix, automatic_name in automatic.items():
            if trust_remote_code and name.endswith(suffix):
                return find_class(automatic_name)
    return find_class("AutoModel")


def _check_class(name: str, kind: Any, config: Any) -> None:
    suits = isinstance(kind, type) and issubclass(kind, PreTrainedModel)
    expected = getattr(kind, "config_class", None)
    # Compare names, too: remote code may redefine a configuration that transformers has.
    if not suits or not (expected is None or isinstance(config, expected) or expected.model_type == config.model_type):
        raise CheckpointError(
            f"architectures in config.json must be a model of type {config.model_type}, got {shortened(name)}; write "
            "the class that saved the weights"
        )


def _registered(name: str, config: Any) -> Any | None:
    kinds = (mapping.get(type(config), None) for _, mapping in list_model_classes())
    return next((kind for kind in kinds if getattr(kind, "__name__", None) == name), None)


def _tokenizer(module: nn.Module, location: str, revision: str | None, trust_remote_code: bool) -> Any | None:
    if getattr(module, "main_input_name", None) != "input_ids":
        return None
    try:
        kind = find_tokenizer_class(module.config) if is_gguf(location) else "AutoTokenizer"
        return load_tokenizer(location, revision=revision, trust_remote_code=trust_remote_code, kind=kind)
    except DataError:
        return None


def _explain(location: str, error: Exception) -> ModelError:
    text = str(error).strip().splitlines()
    reason = shortened(" ".join(map(str.strip, text[:2])) or type(error).__name__, 300)
    if is_gguf(location):
        return refusal(location, reason)
    if f"`{OWN_TYPES}" in str(error):
        return ModelError(f"{location} is a model of layerwise's own architecture; run `import layerwise.models` first")
    if "safetensors" in str(error):
        return CheckpointError(f"{location} has no safetensors weights ({reason}); pickled weights are refused")
    if "cached files" in reason:
        meant = get_close_matches(location, EMBEDDED, n=1)
        return CheckpointError(
            f"{location} could not be loaded: no such folder exists, and the hub cannot be reached; "
            + (f"did you mean {meant[0]}? If not, " if meant else "")
            + _LOCATIONS
        )
    return CheckpointError(f"{location} could not be loaded: {reason}\n{_LOCATIONS}")


def _refuse_lost_parts(location: str, report: Any, adding: tuple[str, ...]) -> None:
    for name, what in ADDED_PARTS.items():
        if name not in adding and any(key.startswith(f"{name}.") for key in report["unexpected_keys"]):
            raise UnsupportedModelError(
                f"the layers of {location} were trained with {what} ({name}), which transformers ignores; "
                "open it with layerwise.train.load_trained.open_trained, or evaluate it with `layerwise robustness`"
            )
