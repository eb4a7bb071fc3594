"""Options that say which model is opened, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from layerwise.experiments.option import option

Device = Literal["auto", "cpu", "cuda", "mps", "xpu"]
Dtype = Literal["auto", "stored", "float32", "float16", "bfloat16", "float64"]


DeviceMap = Literal["auto", "balanced", "balanced_low_0", "sequential"]


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where a model is computed."""

    device: Device = option("auto", "Device that computes.", rare=True)


@dataclass(frozen=True, kw_only=True)
class LoadingOptions(DeviceOptions):
    """How a model is opened, whichever option names it."""

    tokenizer: str | None = option(None, metavar="PATH", is_location=True, rare=True)
    layers: str | None = option(
        None, "Module path of the list of blocks, where it is not found.", metavar="PATH", rare=True
    )
    revision: str | None = option(None, "Branch, tag or commit of a hub model.", metavar="NAME", rare=True)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(LoadingOptions):
    """A pretrained model, by name."""

    model: str = option(help="Hub id, folder, or demo.", metavar="MODEL", positional=True, is_location=True)
    dtype: Dtype = option("auto", rare=True)
    trust_remote_code: bool = option(False, rare=True)

    def placement(self) -> dict[str, Any]:
        """Where `layerwise.load` puts the weights, beside the device."""
        return {}


@dataclass(frozen=True, kw_only=True)
class MemoryOptions:
    """Where the weights of a pretrained model are that may be larger than a device, or than memory."""

    resident_layers: int | None = option(
        None, "Layers in memory at most; each is read from the disk when it is needed.", metavar="N", least=1, rare=True
    )

    device_map: DeviceMap | None = option(
        None, "Spread the model over devices, CPU and disk, as accelerate does; by default one device has it.",
        rare=True,
    )  # fmt: skip

    def placement(self) -> dict[str, Any]:
        return {"resident_layers": self.resident_layers, "device_map": self.device_map}


@dataclass(frozen=True, kw_only=True)
class BaseModelOptions(LoadingOptions):
    """The model that trainings begin from, in float32."""

    model: str = option(help="Hub id, folder, demo or demo-vit.", metavar="MODEL", is_location=True)
