"""layerwise: the layers of a transformer, first-class. Any order, any subset, any mixture.

    import layerwise
    from layerwise import Plan, families

    stack = layerwise.load("demo")                              # or a hub id, a folder, any torch module
    with stack.under(Plan.parse("0-3 6-11")):                   # the model itself runs the plan
        stack.model.generate(...)
    rows = layerwise.sweep(stack, families.leave_one_out(stack.depth), corpus)

A `Plan` is text that became a value; a `Stack` is a model whose layers a plan can run; measurements turn the two into
tidy rows; a report turns rows into pictures. Names are resolved when they are first used: `import layerwise` is light.
"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerwise.data.corpus import Corpus, read_corpus
    from layerwise.errors import LayerwiseError
    from layerwise.measure.ablation import ablation
    from layerwise.measure.effects import effects
    from layerwise.measure.examination import Examination
    from layerwise.measure.examine import examine
    from layerwise.measure.proxies import proxies
    from layerwise.measure.racing import racing
    from layerwise.measure.reading import read
    from layerwise.measure.similarity import similarity
    from layerwise.measure.sweep import sweep
    from layerwise.merge import save
    from layerwise.plan import Plan, edits, families, samplers
    from layerwise.results import Run
    from layerwise.stack import Stack, load, verify

_HOMES = {
    "Corpus": "layerwise.data.corpus",
    "Examination": "layerwise.measure.examination",
    "LayerwiseError": "layerwise.errors",
    "Plan": "layerwise.plan",
    "Run": "layerwise.results",
    "Stack": "layerwise.stack",
    "ablation": "layerwise.measure.ablation",
    "edits": "layerwise.plan",
    "effects": "layerwise.measure.effects",
    "examine": "layerwise.measure.examine",
    "families": "layerwise.plan",
    "load": "layerwise.stack",
    "proxies": "layerwise.measure.proxies",
    "racing": "layerwise.measure.racing",
    "read": "layerwise.measure.reading",
    "read_corpus": "layerwise.data.corpus",
    "samplers": "layerwise.plan",
    "save": "layerwise.merge",
    "similarity": "layerwise.measure.similarity",
    "sweep": "layerwise.measure.sweep",
    "verify": "layerwise.stack",
}

__all__ = [
    "Corpus",
    "Examination",
    "LayerwiseError",
    "Plan",
    "Run",
    "Stack",
    "ablation",
    "edits",
    "effects",
    "examine",
    "families",
    "load",
    "proxies",
    "racing",
    "read",
    "read_corpus",
    "samplers",
    "save",
    "similarity",
    "sweep",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return metadata.version("layerwise")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'layerwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
