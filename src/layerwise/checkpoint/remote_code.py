"""Write the code for `trust_remote_code` in one file: `planned.py` with derived classes, or layerwise's own models."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module, resources
from pathlib import Path
from typing import Any

from layerwise.checkpoint.compact import over_stored, stored_layers, write_record
from layerwise.data.auto_classes import list_model_classes, on_meta
from layerwise.plan import Plan, Sublayer
from layerwise.plan.checks import other_sublayer
from layerwise.plan.config_order import in_visit_order
from layerwise.stack import Stack
from layerwise.stack.blocks import block_list
from layerwise.stack.executors.config_view import configuration_in_order
from layerwise.stack.executors.in_place import slots_per_block

MODULE = "modeling_layerwise"

OWN = "layerwise."
"""Module prefix of models that transformers does not have."""


def add_plan(
    draft: Path, plan: Plan, kind: Any, config: Any, path: str, stack: Stack | None, remote_code: bool
) -> None:
    """Record `plan` in the folder `draft`, which contains its layers. If `remote_code`, add code that runs the plan.

    Raises `UnsupportedModelError` if the plan runs sublayers and the layers of the model cannot be split.
    """
    halves = stack.branches().paths if stack is not None and plan.has_sublayers() else []
    if not remote_code:
        write_record(draft, over_stored(plan))
        return
    paths = [halves[step.layer] for step in stored_layers(plan).steps()] if halves else []
    record = plan_record(kind, config, path, over_stored(plan), paths)
    write_record(draft, over_stored(plan), record, write_code(draft, kind, planned=True))


def add_own_code(draft: Path, kind: Any) -> None:
    write_record(draft, None, None, write_code(draft, kind, planned=False))


def plan_record(
    kind: Any, config: Any, path: str, plan: Plan, halves: Sequence[Mapping[Sublayer, str]]
) -> dict[str, Any]:
    """Return the record of a plan that `planned.py` reads. `halves` has the sublayer paths of each stored layer."""
    model = on_meta(kind, config)
    blocks = list(block_list(model, path))
    order = plan.order()
    planned = configuration_in_order(model, path, order, len(blocks))
    owner = {
        name: value
        for name, value in vars(model.get_submodule(path.rpartition(".")[0])).items()
        if isinstance(value, int | list | tuple)
    }
    return {
        "blocks": path,
        "slots": slots_per_block(blocks),
        "visits": list(_visits(plan, halves)),
        "owner": in_visit_order(owner, path, order, len(blocks)),
        "config": _changed(model.config.to_dict(), planned.to_dict()),  # type: ignore[union-attr, operator]
    }


def _visits(plan: Plan, halves: Sequence[Mapping[Sublayer, str]]) -> Iterator[dict[str, Any]]:
    branches: list[int] = []
    for step in plan.steps():
        visit: dict[str, Any] = {"layer": step.layer}
        branches += [0] * step.opens
        closes: list[float | None] = []
        for close in step.closes:
            branches[-1] += 1
            closes.append(None if close is None else close.weight(branches.pop()))
        if step.sublayer is not None:
            visit["silent"] = halves[step.layer][other_sublayer(step.sublayer)]
        yield visit | ({"opens": step.opens} if step.opens else {}) | ({"closes": closes} if closes else {})


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    changed = {}
    for name, value in after.items():
        old = before.get(name)
        if value != old:
            nested = isinstance(value, dict) and isinstance(old, dict)
            changed[name] = _changed(old, value) if nested else value  # type: ignore[arg-type]
    return changed


def write_code(folder: Path, kind: Any, planned: bool) -> dict[str, str]:
    automatic = automatic_classes(kind)
    own = kind.__module__.startswith(OWN)
    names = sorted(set(automatic.values()))
    parts = [joined_modules(kind.__module__)] if own else []
    if planned:
        parts.append((resources.files("layerwise.checkpoint") / "planned.py").read_text(encoding="utf-8"))
        parts.append("" if own else f"from transformers import {', '.join(names)}  # noqa: E402")
        parts += [f"\nclass {name}(PlannedModel, {name}):\n    pass\n" for name in names]
    (folder / f"{MODULE}.py").write_text(_one_future("\n".join(parts)), encoding="utf-8")
    classes = {automatic_name: f"{MODULE}.{name}" for automatic_name, name in automatic.items()}
    return classes | ({"AutoConfig": f"{MODULE}.{kind.config_class.__name__}"} if own else {})


def automatic_classes(kind: Any) -> dict[str, str]:
    """Return the auto classes of transformers that load `kind` or its base model, with the class that each loads.

    >>> from transformers import GPT2LMHeadModel
    >>> automatic_classes(GPT2LMHeadModel)
    {'AutoModel': 'GPT2Model', 'AutoModelForCausalLM': 'GPT2LMHeadModel'}
    """
    opened, own = {}, kind.__module__.startswith(OWN)
    for name, mapping in list_model_classes():
        if name != "AutoModelForPreTraining":
            classes = mapping.get(kind.config_class, None)
            each = next(
                (one for one in (classes if isinstance(classes, tuple) else (classes,)) if one is not None), None
            )
            if each is kind or ((own or name == "AutoModel") and each is not None):
                opened[name] = each.__name__
    return opened


def joined_modules(root: str) -> str:
    ordered: dict[str, str] = {}
    _collect(root, ordered)
    return "\n\n".join(ordered.values()) + "\n"


def _collect(module: str, ordered: dict[str, str]) -> None:
    if module in ordered:
        return
    lines = inspect.getsource(import_module(module)).splitlines()
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OWN):
            _collect(str(node.module), ordered)
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = " " * node.col_offset + "pass" if number == node.lineno - 1 and node.col_offset else ""
    ordered[module] = f"# -- {module}\n" + "\n".join(lines)


def _one_future(source: str) -> str:
    future = "from __future__ import annotations"
    return f"{future}\n\n{source.replace(future, '')}"
