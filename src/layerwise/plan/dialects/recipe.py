"""A plan, and the models that its layers come from: what a merge configuration says of a model to be written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from layerwise.plan.plan import Plan


@dataclass(frozen=True, slots=True)
class MergeRecipe:
    """A plan with the location of each of its models, as a file of another tool, or a text, gives them.

    `models` leads from a name in the plan to a hub id, with `@revision` if there is one, or to a folder; a plan that
    names no model has the one key `None`, or no model at all. The first of them is the model whose embedding, and whose
    other parts before the layers, are taken. `head` is the name of the model whose parts behind the layers are taken.
    `dtype` is the data type of the weights, or `None` for that of the files. `notes` say in sentences what of the file
    has no effect.
    """

    plan: Plan
    models: Mapping[str | None, str] = field(default_factory=dict)
    head: str | None = None
    dtype: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def host(self) -> str | None:
        """The name of the model whose parts before the layers are taken: the first one."""
        return next(iter(self.models), None)
