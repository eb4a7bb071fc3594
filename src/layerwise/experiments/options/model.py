"""Options that say which model is opened, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from layerwise.experiments.option import option
from layerwise.experiments.reporter import Reporter

if TYPE_CHECKING:
    from layerwise.stack import Stack

Device = Literal["auto", "cpu", "cuda", "mps", "xpu"]
Dtype = Literal["auto", "stored", "float32", "float16", "bfloat16", "float64"]


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where a model is computed."""

    device: Device = option("auto", "Device that computes.")


@dataclass(frozen=True, kw_only=True)
class LoadingOptions(DeviceOptions):
    """How a model is opened, whichever option names it."""

    tokenizer: str | None = option(
        None, "Tokenizer to use when the model folder has none.", metavar="PATH", is_location=True
    )
    layers: str | None = option(None, "Module path of the list of blocks, where it is not found.", metavar="PATH")
    revision: str | None = option(None, "Branch, tag or commit of a hub model.", metavar="NAME")


@dataclass(frozen=True, kw_only=True)
class ModelOptions(LoadingOptions):
    """A pretrained model, by name."""

    model: str = option(help="Hub id, folder, or demo.", metavar="MODEL", positional=True, is_location=True)
    dtype: Dtype = option("auto", "Data type; stored is the checkpoint's, and auto too, but float32 on a CPU.")
    trust_remote_code: bool = option(False, "Run code that comes with the model.")

    def open_model(self, reporter: Reporter) -> Stack:
        """The model as these options say. transformers stays quiet. Raises `ModelError` where it cannot be opened."""
        from layerwise.experiments.opening import open_model

        reporter.log(f"loading {self.model}")
        return open_model(self, model=self.model, dtype=self.dtype, trust_remote_code=self.trust_remote_code)


@dataclass(frozen=True, kw_only=True)
class BaseModelOptions(LoadingOptions):
    """The model that trainings begin from, in float32."""

    model: str = option(help="Hub id, folder, demo or demo-vit.", metavar="MODEL", is_location=True)
