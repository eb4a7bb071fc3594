"""Compact checkpoints store each layer once, and the plan over these layers under `layerwise` in `config.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from layerwise.data.stored_files import CONFIG
from layerwise.errors import PlanError
from layerwise.plan import Plan, Visit
from layerwise.plan.checks import refuse_quantized_layers
from layerwise.plan.dialects.sequence import join_sublayers
from layerwise.plan.edits import map_visits

RECORD = "layerwise"


def refuse_inexpressible(plan: Plan, compact: str = ", write it with --compact,", *, types: bool = False) -> None:
    if not types:
        refuse_quantized_layers(plan, "save a model")
    steps = plan.steps()
    if plan.has_sublayers():
        sublayer = next(step.name for step in steps if step.sublayer is not None)
        raise PlanError(
            f"a checkpoint stores only whole layers, but the plan runs {sublayer}; run it in place with "
            f"stack.under{compact} or omit the sublayers"
        )
    if any(step.opens or step.closes for step in steps):
        flat = " ".join(step.name for step in steps)
        raise PlanError(
            "a checkpoint runs its layers in sequence, but the plan has a group; run it in place with "
            f"stack.under{compact} or write its layers in sequence, as in {Plan.parse(flat)}"
        )


def needs_compact(plan: Plan) -> bool:
    """Return True if only a compact checkpoint can store a plan, since it has groups or sublayers.

    >>> [needs_compact(Plan.parse(text)) for text in ("0 2*3 1", "0 (1|2)", "0 1.mlp", "0 (1.attn):gain=0.5 1.mlp")]
    [False, True, True, False]
    """
    steps = join_sublayers(plan)[0].steps()
    return any(step.sublayer is not None or step.opens or step.closes for step in steps)


def stored_layers(plan: Plan) -> Plan:
    """Return the plan that visits each layer of `plan` once, in ascending order.

    >>> stored_layers(Plan.parse("0 (4|5)*2 2.mlp"))
    Plan('0 2 4 5')
    """
    visited = sorted(plan.weights(), key=lambda pair: (pair[1], pair[0] or ""))
    return Plan(tuple(Visit(layer, source=source) for source, layer in visited))


def written_layers(plan: Plan, compact: bool) -> Plan:
    return stored_layers(plan) if compact else join_sublayers(plan)[0]


def over_stored(plan: Plan) -> Plan:
    """Renumber the layers of `plan` by their positions in `stored_layers(plan)`.

    >>> over_stored(Plan.parse("0 (4|5)*2 2.mlp"))
    Plan('0 (2|3)*2 1.mlp')
    """
    numbers = {(step.source, step.layer): slot for slot, step in enumerate(stored_layers(plan).steps())}
    renumbered = map_visits(plan, lambda visit: replace(visit, layer=numbers[visit.source, visit.layer], source=None))
    assert renumbered is not None
    return renumbered


def write_record(
    folder: Path, plan: Plan | None, remote: Mapping[str, Any] | None = None, auto_map: Mapping[str, str] | None = None
) -> None:
    settings = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    if plan is not None:
        settings[RECORD] = {"plan": str(plan), **(remote or {})}
    if auto_map:
        settings["auto_map"] = dict(auto_map)
    text = json.dumps(settings, indent=2, sort_keys=True)
    (folder / CONFIG).write_text(text + "\n", encoding="utf-8")
