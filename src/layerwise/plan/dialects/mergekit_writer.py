"""A plan as mergekit's YAML; `layerwise.plan.dialects.mergekit_reader` says what the form is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from layerwise.errors import PlanError
from layerwise.plan.dialects.mergekit_reader import DTYPES
from layerwise.plan.dialects.sequence import ascending_runs, sequential
from layerwise.plan.plan import Plan

_FORM = "mergekit's YAML"
_PLAIN = re.compile(r"/?[A-Za-z0-9_.][A-Za-z0-9_.-]*(/[A-Za-z0-9_.-]+)+(@[A-Za-z0-9_.-]+)?")


def write_mergekit(
    plan: Plan | str, models: Mapping[str | None, str] | str, dtype: str | None = None, head: str | None = None
) -> str:  # fmt: skip
    """The YAML of a plan over `models`, one location or, by their names in the plan, several.

    The first model is the one whose embedding is taken, and so is its head, if `head` names no other. Runs of layers
    that go up become slices. Raises `PlanError` that names the stage where the plan does not run whole layers one after
    another.

    >>> print(write_mergekit("0-7 6-11", "org/name"), end="")
    merge_method: passthrough
    slices:
    - sources:
      - model: org/name
        layer_range: [0, 8]
    - sources:
      - model: org/name
        layer_range: [6, 12]
    """
    flat = sequential(plan, _FORM)
    by_name: Mapping[str | None, str] = {None: models} if isinstance(models, str) else models
    _check_names({step.source for step in flat.steps()} | ({head} if head else set()), by_name)
    if dtype is not None and dtype not in DTYPES:
        raise PlanError(f"mergekit writes {', '.join(DTYPES)}, not {dtype!r}")
    host = next(iter(by_name))
    ranges = ascending_runs(flat)
    if ranges[0][0] != host:
        ranges.insert(0, (host, 0, 0))
    last = host if head is None else head
    if ranges[-1][0] != last:
        ranges.append((last, 0, 0))
    lines = ["merge_method: passthrough", *([f"dtype: {dtype}"] if dtype else []), "slices:"]
    named: set[str | None] = {None}
    for name, start, stop in ranges:
        anchor = "" if name in named else f"&{name} "
        named.add(name)
        lines += ["- sources:", f"  - model: {anchor}{_quoted(by_name[name])}", f"    layer_range: [{start}, {stop}]"]
    return "\n".join(lines) + "\n"


def _check_names(used: set[str | None], models: Mapping[str | None, str]) -> None:
    if None in used and len(used) > 1:
        raise PlanError(f"{_FORM} names a model for each layer, and some layers of the plan have no name: write a:0-3")
    for name in sorted(used - models.keys(), key=str):
        whose = "the layers" if name is None else f"the layers of {name!r}"
        raise PlanError(f"{_FORM} names a model for each layer, and nothing says where {whose} lie: name the model")
    for location in models.values():
        if "+" in location or location.count("@") > 1 or not location.isprintable():
            raise PlanError(
                f"mergekit reads + and @ in the location of a model as an adapter and a revision: rename {location!r}"
            )


def _quoted(location: str) -> str:
    """A location as YAML text; quoted unless it looks like nothing else."""
    return location if _PLAIN.fullmatch(location) else json.dumps(location, ensure_ascii=False)
