"""Layers of unlike kinds in one stack, and the plans that their model could not run in place.

Hybrids interleave attention with linear or state-space layers, and ask their cache for its length by kind: of the first
attention layer, of the last linear one. A plan that keeps none of a kind leaves that question without an answer.
"""

from __future__ import annotations

from torch import nn

from layerwise.errors import PlanError
from layerwise.plan import Plan


def refuse_loss_of_a_kind(model: nn.Module, path: str, plan: Plan) -> None:
    """Raise `PlanError` when the stack mixes kinds of layers and `plan` keeps none of one kind."""
    owner = model.get_submodule(path.rpartition(".")[0])
    types = getattr(getattr(owner, "config", None), "layer_types", None)
    if not isinstance(types, list | tuple) or len(types) != len(model.get_submodule(path)):  # type: ignore[arg-type]
        return
    kinds = [_kind(str(name)) for name in types]
    kept = {kinds[layer] for layer in plan.layers()}
    for kind in ("attention", "recurrent"):
        if kind in kinds and kind not in kept:
            layers = ", ".join(str(layer) for layer, layer_kind in enumerate(kinds) if layer_kind == kind)
            raise PlanError(
                f"the plan keeps no {kind} layer, and this model's cache takes its length from one: "
                f"keep at least one of layers {layers}"
            )


def _kind(layer_type: str) -> str | None:
    """What the cache keeps for a layer type: keys and values, a running state, or nothing."""
    if layer_type in ("moe", "mlp"):
        return None
    return "attention" if layer_type.endswith("attention") and layer_type != "linear_attention" else "recurrent"
