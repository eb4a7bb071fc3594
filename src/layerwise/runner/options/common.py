"""Options of almost every verb: the model, the examples, the run folder, the cluster, the stopwatch, the hub."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from layerwise.errors import DataError
from layerwise.runner.option import option

if TYPE_CHECKING:
    from layerwise.data.text.corpus import Corpus

Device = Literal["auto", "cpu", "cuda", "mps", "xpu"]
Dtype = Literal["auto", "stored", "float32", "float16", "bfloat16", "float64"]


DeviceMap = Literal["auto", "balanced", "balanced_low_0", "sequential"]


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Where a model is computed."""

    device: Device = option("auto", "Device: auto, cpu, cuda, mps or xpu.", rare=True)


@dataclass(frozen=True, kw_only=True)
class LoadingOptions(DeviceOptions):
    """How a model is opened, whichever option names it."""

    tokenizer: str | None = option(None, metavar="PATH", is_location=True, rare=True)
    layers: str | None = option(None, "Module path of the list of blocks.", metavar="PATH", rare=True)
    revision: str | None = option(None, "Branch, tag or commit of a hub model.", metavar="NAME", rare=True)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(LoadingOptions):
    """A pretrained model, by name."""

    model: str = option(help="Hub id, folder, GGUF file, or demo.", metavar="MODEL", positional=True, is_location=True)
    dtype: Dtype = option("auto", rare=True)
    trust_remote_code: bool = option(False, rare=True)

    def placement(self) -> dict[str, Any]:
        return {}


@dataclass(frozen=True, kw_only=True)
class ResidentOptions:
    """Which of the layers of a pretrained model are in memory, which may be smaller than the model."""

    resident_layers: int | None = option(
        None, "Maximum number of layers in memory; others are read when needed.", metavar="N", least=1, rare=True
    )

    def placement(self) -> dict[str, Any]:
        return {"resident_layers": self.resident_layers}


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(ResidentOptions):
    """Where the weights of a pretrained model are that may be larger than a device, or than memory."""

    device_map: DeviceMap | None = option(
        None,
        "Spread the model over devices, CPU and disk, as accelerate does; by default one device has it.",
        rare=True,
    )

    def placement(self) -> dict[str, Any]:
        return {**super().placement(), "device_map": self.device_map}


@dataclass(frozen=True, kw_only=True)
class BaseModelOptions(LoadingOptions):
    """The model that trainings begin from, in float32."""

    model: str = option(help="Hub id, folder, demo or demo-vit.", metavar="MODEL", is_location=True)


SEEDS = 2**32
"""Seeds are below this, as numpy's are."""


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where the rows go, and what the random draws start from."""

    run: Path | None = option(None, "Output directory (default: named by the options).", metavar="PATH")
    overwrite: bool = option(False)
    seed: int = option(0, "Seed of every random draw.", metavar="N", least=0, most=SEEDS - 1)


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Workers on a Ray cluster, in place of this process."""

    ray: str | None = option(None, metavar="ADDRESS", rare=True)
    workers: int | None = option(
        None,
        "Workers, each with one thread; by default as many as the cluster has processors.",
        metavar="N",
        least=1,
        most=10_000,
        rare=True,
        needs="ray",
    )


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """A text to train on, and what is held out of it."""

    text: Path | None = option(None, metavar="PATH")
    validation: Path | None = option(
        None, "Text that selects checkpoints; by default a share of --text.", metavar="PATH", rare=True
    )
    test: Path | None = option(
        None, "Text that is reported; by default half of --validation, or a share of --text.", metavar="PATH", rare=True
    )


@dataclass(frozen=True, kw_only=True)
class DataOptions(CorpusOptions):
    """Images or a text, whichever the model takes."""

    images: str | None = option(
        None, "Folder of class folders, hub dataset, or digits.", metavar="LOCATION", is_location=True
    )
    on_bad_image: Literal["refuse", "skip"] = option(
        "refuse", "What is done about images that cannot be read.", setting=True
    )
    max_length: int | None = option(None, metavar="N", least=2, rare=True)
    limit: int | None = option(None, metavar="N", least=1, rare=True)
    select_on: Literal["held-out", "reported"] = option(
        "held-out",
        "Examples that select checkpoints: some of their own, or those that are reported (as in papers).",
        rare=True,
    )


BATCH_TOKENS = 4096
"""Tokens that run together, unless `--batch-tokens` says otherwise."""


@dataclass(frozen=True, kw_only=True)
class TextOptions:
    """The text that a model is scored on."""

    text: Path | None = option(None, metavar="PATH")
    tokens: int | Literal["all"] | None = option(None, metavar="N", least=1)
    max_length: int | None = option(None, metavar="N", least=2, rare=True)
    batch_tokens: int | None = option(None, metavar="N", least=1, rare=True)

    @property
    def limit(self) -> int | None:
        """How many tokens are scored at most; `None` for all of them."""
        return self.tokens if isinstance(self.tokens, int) else None

    def corpus(self, model: str) -> Corpus:
        """The text: the one that was named, or the demo's own. Raises `DataError` for a model that has none."""
        from layerwise.data.demo.corpus import demo_corpus
        from layerwise.data.text.corpus import read_corpus

        if self.text is not None:
            return read_corpus(self.text)
        if model == "demo":
            return demo_corpus()
        raise DataError(
            "a text to score is needed: --text FILE_OR_FOLDER (only demo has its own); a model of images is measured "
            "by layerwise robustness MODEL --images FOLDER"
        )


@dataclass(frozen=True, kw_only=True)
class DurationOptions(TextOptions):
    """How long a measurement may take, which says how much of the text is read."""

    minutes: float | None = option(
        None,
        "Time budget in minutes (default: 10): how much text is read, and how large the question is.",
        metavar="N",
        least=1,
        most=10_000,
    )
