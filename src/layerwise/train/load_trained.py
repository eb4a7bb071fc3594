"""Load a trained model with its training record and the module that its training variant added."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from safetensors import safe_open
from torch import Tensor, nn

import layerwise.models  # noqa: F401  (registers the architectures of trained models)
from layerwise.errors import CheckpointError, UnsupportedModelError
from layerwise.plan import LayerWeights
from layerwise.results.checked import to_dataclass
from layerwise.results.training_record import FILE, TrainingRecord
from layerwise.stack import Stack, load
from layerwise.train import layer_mixing
from layerwise.train.layer_mixing import LayerMixing
from layerwise.train.methods import LayerMixingOptions
from layerwise.train.position import PositionPrediction
from layerwise.train.recipe import EXTENSIONS, TrainingExtension

Options = TypeVar("Options", bound=TrainingExtension)


@dataclass(frozen=True, slots=True)
class Trained:
    stack: Stack
    record: TrainingRecord | None
    added: nn.Module | None = None

    @property
    def prediction(self) -> PositionPrediction | None:
        return self.added if isinstance(self.added, PositionPrediction) else None


def open_trained(folder: Path, *, device: str = "auto", dtype: str = "auto") -> Trained:
    """Load the model in `folder`, including the module that its training variant added.

    Raises:
        CheckpointError: If weights of the added module are missing.
    """
    record = TrainingRecord.read(folder)
    kind = _kind(record)
    module = None if kind is None else kind.MODULE
    needed = (module,) if kind is not None and kind.ADDED and module else ()
    stack = load(folder, device=device, dtype=dtype, adding=needed)
    if record is None or kind is None or module is None:
        return Trained(stack, record)
    with suppress(UnsupportedModelError):
        # Branches are verified on the plain blocks, before a module is attached.
        stack.branches()
    added = _options(kind, record, folder).attach(stack)
    if added is not None:
        _fill(added, folder, module)
    return Trained(stack, record, added)


def saved_edges(folder: Path) -> LayerWeights | None:
    """Read the learned layer weights of the model in `folder` without loading it, or return None if it has none."""
    record = TrainingRecord.read(folder)
    if record is None or _kind(record) is not LayerMixingOptions:
        return None
    raw = _added(folder, layer_mixing.NAME).get("raw")
    wired = LayerMixing(1 if raw is None else raw.shape[1] - 1, _options(LayerMixingOptions, record, folder))
    _fill(wired, folder, layer_mixing.NAME)
    return wired.edges()


def _kind(record: TrainingRecord | None) -> type[TrainingExtension] | None:
    return None if record is None else EXTENSIONS.get(str(record.recipe.get("extension")))


def _options(kind: type[Options], record: TrainingRecord, folder: Path) -> Options:
    return to_dataclass(kind, record.recipe.get("options"), f"options in the recipe of {folder / FILE}")


def _added(folder: Path, name: str) -> dict[str, Tensor]:
    result: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as tensors:
            keys = [key for key in tensors.keys() if key.startswith(f"{name}.")]  # noqa: SIM118  (not a mapping)
            result |= {key.removeprefix(f"{name}."): tensors.get_tensor(key) for key in keys}
    return result


def _fill(module: nn.Module, folder: Path, name: str) -> None:
    added = _added(folder, name)
    missing = sorted(set(module.state_dict()) - set(added))
    if missing:
        raise CheckpointError(
            f"{folder} lacks {len(missing)} of the weights of {name} (first: {name}.{missing[0]}). Train the model "
            "again, or pass another one."
        )
    module.load_state_dict(added)
