"""Run, measure, train and serve transformers with their layers in any order.

    import layerwise
    from layerwise import Plan

    stack = layerwise.load("demo")                              # or a hub id, a folder, a torch module
    with stack.under(Plan.parse("0-3 6-11")):                   # the model runs the plan
        stack.model.generate(...)
    result = layerwise.sweep(stack, layerwise.demo_corpus(), families=("leave_one_out",))
    result.table()                                              # effects with intervals

`sweep`, `diagnose` and so on are the commands of the command line, listed in `layerwise.catalogue`. Names are imported
when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerwise.catalogue import *  # noqa: F403
    from layerwise.checkpoint import save as save
    from layerwise.data.demo.corpus import demo_corpus as demo_corpus
    from layerwise.data.text.corpus import Corpus as Corpus
    from layerwise.data.text.corpus import read_corpus as read_corpus
    from layerwise.errors import LayerwiseError as LayerwiseError
    from layerwise.plan import Plan as Plan
    from layerwise.plan import edits as edits
    from layerwise.plan import families as families
    from layerwise.plan import samplers as samplers
    from layerwise.results import Run as Run
    from layerwise.runner.files import run as run
    from layerwise.runner.result import Result as Result
    from layerwise.search.budget import Budget as Budget
    from layerwise.stack import Stack as Stack
    from layerwise.stack import load as load

_MODULES = ("search", "swarm", "train")
_HOMES = {
    "Budget": "layerwise.search.budget",
    "Corpus": "layerwise.data.text.corpus",
    "LayerwiseError": "layerwise.errors",
    "Plan": "layerwise.plan",
    "Result": "layerwise.runner.result",
    "Run": "layerwise.results",
    "Stack": "layerwise.stack",
    "demo_corpus": "layerwise.data.demo.corpus",
    "edits": "layerwise.plan",
    "families": "layerwise.plan",
    "load": "layerwise.stack",
    "read_corpus": "layerwise.data.text.corpus",
    "run": "layerwise.runner.files",
    "samplers": "layerwise.plan",
    "save": "layerwise.checkpoint",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata  # slow to import

        return metadata.version("layerwise")
    if name in _MODULES:
        return import_module(f"layerwise.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "__all__":
        return sorted({*_MODULES, *_HOMES, *_verbs()})
    if not name.startswith("_") and name in (verbs := _verbs()):
        return verbs[name]
    raise AttributeError(f"module 'layerwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__getattr__("__all__"), "__version__"]


def _verbs() -> dict[str, Any]:
    catalogue = import_module("layerwise.catalogue")
    functions = [verb.function for verb in catalogue.VERBS.values()]
    return {name: value for name, value in vars(catalogue).items() if value in functions}
