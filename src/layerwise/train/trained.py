"""A trained model opened again: its stack, what its variant added to it, and its pedigree."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from safetensors import safe_open
from torch import Tensor, nn

import layerwise.models  # noqa: F401  (registers the architectures that trainings leave)
from layerwise.errors import CheckpointError, UnsupportedModel
from layerwise.plan import Edges
from layerwise.results.checked_json import value_of
from layerwise.results.pedigree import FILE, Pedigree
from layerwise.stack import Stack, load
from layerwise.train import position, prediction, wiring
from layerwise.train.prediction import PositionPrediction
from layerwise.train.recipe import PositionOptions, PredictionOptions, WiringOptions
from layerwise.train.wiring import LayerWiring

Options = TypeVar("Options")


@dataclass(frozen=True, slots=True)
class Trained:
    """A model with its pedigree; `prediction` is there for models that predict their layers' positions, `wiring` for
    those whose layers read learned mixes.
    """

    stack: Stack
    pedigree: Pedigree | None
    prediction: PositionPrediction | None = None
    wiring: LayerWiring | None = None


def open_trained(folder: Path, *, device: str = "auto", dtype: str = "auto") -> Trained:
    """The model in `folder` as it was trained: with its position encoding, prediction or wiring, if the recipe has one.

    Raises `CheckpointError` when their weights are not in the folder.
    """
    pedigree = Pedigree.read(folder)
    variant = "plain" if pedigree is None else pedigree.recipe.get("variant")
    adding = {"position": (position.NAME,), "wiring": (wiring.NAME,)}.get(str(variant), ())
    stack = load(folder, device=device, dtype=dtype, adding=adding)
    if pedigree is None or variant not in ("position", "predict", "wiring"):
        # Pretraining names variants of an architecture, which its own class brings with it.
        return Trained(stack, pedigree)
    with suppress(UnsupportedModel):
        # The branches are proved on the plain blocks, before anything is told or asked in between.
        stack.branches()
    if variant == "position":
        encoding = position.attach(stack, _options(PositionOptions, pedigree, "position", folder))
        _fill(encoding, folder, position.NAME)
        return Trained(stack, pedigree)
    if variant == "wiring":
        wired = wiring.attach(stack, _options(WiringOptions, pedigree, "wiring", folder))
        _fill(wired, folder, wiring.NAME)
        return Trained(stack, pedigree, wiring=wired)
    asked = prediction.attach(stack, _options(PredictionOptions, pedigree, "prediction", folder))
    _fill(asked, folder, prediction.NAME)
    return Trained(stack, pedigree, asked)


def saved_edges(folder: Path) -> Edges | None:
    """The learned wiring of the model in `folder`, read without opening the model; `None` for a model without one."""
    pedigree = Pedigree.read(folder)
    if pedigree is None or pedigree.recipe.get("variant") != "wiring":
        return None
    found = _added(folder, wiring.NAME)
    depth = found["raw"].shape[1] - 1 if "raw" in found else 1
    wired = LayerWiring(depth, _options(WiringOptions, pedigree, "wiring", folder))
    _fill(wired, folder, wiring.NAME)
    return wired.edges()


def _options(kind: type[Options], pedigree: Pedigree, name: str, folder: Path) -> Options:
    """The part `name` of the recipe that a model was trained by. Raises `RunError` for what does not belong there."""
    return value_of(kind, pedigree.recipe.get(name), f"{name} in the recipe of {folder / FILE}")


def _added(folder: Path, name: str) -> dict[str, Tensor]:
    """The tensors of an added module in a model folder, by their names in the module."""
    found: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as tensors:
            keys = [key for key in tensors.keys() if key.startswith(f"{name}.")]  # noqa: SIM118  (it is no mapping)
            found |= {key.removeprefix(f"{name}."): tensors.get_tensor(key) for key in keys}
    return found


def _fill(module: nn.Module, folder: Path, name: str) -> None:
    """Load the tensors of an added module from a model folder."""
    found = _added(folder, name)
    missing = sorted(set(module.state_dict()) - set(found))
    if missing:
        raise CheckpointError(
            f"{folder} says that its layers were trained with {name}, but {len(missing)} of its weights are missing "
            f"(the first is {name}.{missing[0]}); train it again, or take another model"
        )
    module.load_state_dict(found)
