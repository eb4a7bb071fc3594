"""layerwise: the layers of a transformer, first-class. Any order, any subset, any mixture, any machine.

    import layerwise
    from layerwise import Plan

    stack = layerwise.load("demo")                              # or a hub id, a folder, any torch module
    with stack.under(Plan.parse("0-3 6-11")):                   # the model itself runs the plan
        stack.model.generate(...)
    result = layerwise.sweep(stack, layerwise.demo_corpus(), families=("leave_one_out",))
    result.table()                                              # every effect with its interval

A `Plan` is text that became a value; a `Stack` is a model whose layers a plan can run; an experiment turns the two into
tidy rows; a report turns rows into pictures. The verbs (`sweep`, `diagnose`, ...) are those of the command line, and
so are their kinds (`train.elc`, ...); the functions under them are in
`layerwise.measure`. Names are resolved when they are first used: `import layerwise` is light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerwise.checkpoint import save
    from layerwise.data.demo.corpus import demo_corpus
    from layerwise.data.text.corpus import Corpus, read_corpus
    from layerwise.errors import LayerwiseError
    from layerwise.plan import Plan, edits, families, samplers
    from layerwise.results import Run
    from layerwise.runner.files import run
    from layerwise.runner.result import Result
    from layerwise.search.budget import Budget
    from layerwise.stack import Stack, load
    from layerwise.studies.compare.verb import compare
    from layerwise.studies.diagnose.verb import diagnose
    from layerwise.studies.evaluate.verb import evaluate
    from layerwise.studies.heal.verb import heal
    from layerwise.studies.robustness.merge_verb import merge
    from layerwise.studies.robustness.verb import robustness
    from layerwise.studies.sweep.verb import sweep
    from layerwise.studies.time.verb import time
    from layerwise.studies.verify.verb import verify

_HOMES = {
    "Budget": "layerwise.search.budget",
    "Corpus": "layerwise.data.text.corpus",
    "LayerwiseError": "layerwise.errors",
    "Plan": "layerwise.plan",
    "Result": "layerwise.runner.result",
    "Run": "layerwise.results",
    "Stack": "layerwise.stack",
    "compare": "layerwise.studies.compare.verb",
    "demo_corpus": "layerwise.data.demo.corpus",
    "diagnose": "layerwise.studies.diagnose.verb",
    "edits": "layerwise.plan",
    "evaluate": "layerwise.studies.evaluate.verb",
    "families": "layerwise.plan",
    "heal": "layerwise.studies.heal.verb",
    "load": "layerwise.stack",
    "read_corpus": "layerwise.data.text.corpus",
    "merge": "layerwise.studies.robustness.merge_verb",
    "robustness": "layerwise.studies.robustness.verb",
    "run": "layerwise.runner.files",
    "samplers": "layerwise.plan",
    "save": "layerwise.checkpoint",
    "sweep": "layerwise.studies.sweep.verb",
    "time": "layerwise.studies.time.verb",
    "verify": "layerwise.studies.verify.verb",
}

__all__ = [
    "Budget",
    "Corpus",
    "LayerwiseError",
    "Plan",
    "Result",
    "Run",
    "Stack",
    "compare",
    "demo_corpus",
    "diagnose",
    "edits",
    "evaluate",
    "families",
    "heal",
    "load",
    "merge",
    "read_corpus",
    "robustness",
    "run",
    "samplers",
    "save",
    "search",
    "swarm",
    "sweep",
    "time",
    "train",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib import metadata  # takes as long to import as all else that help needs of layerwise

        return metadata.version("layerwise")
    if name in ("search", "swarm", "train"):
        return import_module(f"layerwise.{name}")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'layerwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
