"""The kinds of run, loaded from `layerwise.catalogue.PAGES` when the first page is made."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from layerwise.page.data import ReportData
from layerwise.page.kind import Kind


@cache
def load_kinds() -> tuple[Kind, ...]:
    from layerwise.catalogue import PAGES  # which imports the verbs

    parts = (path.partition(":") for path in PAGES.values())
    kinds: list[Kind] = [getattr(import_module(module), name) for module, _, name in parts]
    return tuple(sorted(kinds, key=lambda kind: kind.rank))


def present_kinds(data: ReportData) -> tuple[Kind, ...]:
    """The kinds of run that this one is; a run without any rows is shown as the sweep it may become."""
    kinds = load_kinds()
    return tuple(kind for kind in kinds if kind.is_of(data)) or kinds[:1]
