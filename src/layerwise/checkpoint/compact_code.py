"""The plan of a compact checkpoint, and the code that runs it, added to a draft of the stored layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layerwise.checkpoint.compact import over_stored, stored_layers, write_record
from layerwise.checkpoint.remote_code import plan_record, write_code
from layerwise.plan import Plan
from layerwise.stack import Stack


def add_plan(
    draft: Path, plan: Plan, kind: Any, config: Any, path: str, stack: Stack | None, remote_code: bool
) -> None:
    """Add `plan` to a draft of its stored layers: a model of class `kind` and this configuration, its blocks at `path`.

    The halves of layers are found on `stack`, and so are there before a plan with halves is written. Raises
    `UnsupportedModel` for a plan with halves of a model that has none.
    """
    halves = stack.branches().paths if stack is not None and plan.has_sublayers() else None
    if not remote_code:
        write_record(draft, over_stored(plan))
        return
    paths = None if halves is None else [halves[step.layer] for step in stored_layers(plan).steps()]
    record = plan_record(kind, config, path, over_stored(plan), paths)
    write_record(draft, over_stored(plan), record, write_code(draft, kind, planned=True))


def add_own_code(draft: Path, kind: Any) -> None:
    """Add the code of a model of layerwise's own to its folder, so that plain transformers opens it."""
    write_record(draft, None, None, write_code(draft, kind, planned=False))
