"""A model whose layers are on several machines, and that keeps answering when some of them fail.

    swarm = layerwise.swarm.gather(stack, nodes=8, replicas=2, address="auto")    # without `address`: in this process
    answer = swarm.generate(ids, max_new_tokens=64)

If no replica of a lost layer is left, the model continues without it: see `answer.missing` and `answer.expected`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerwise.swarm.answer import Answer, Expected
    from layerwise.swarm.estimate import LossEstimate, estimate_of_run
    from layerwise.swarm.gathering import gather
    from layerwise.swarm.nodes.local import Fault, Schedule
    from layerwise.swarm.settings import Quorum, SwarmSettings
    from layerwise.swarm.swarm import Swarm

_HOMES = {
    "Answer": "answer",
    "Expected": "answer",
    "Fault": "nodes.local",
    "LossEstimate": "estimate",
    "Quorum": "settings",
    "Schedule": "nodes.local",
    "Swarm": "swarm",
    "SwarmSettings": "settings",
    "estimate_of_run": "estimate",
    "gather": "gathering",
}

__all__ = [
    "Answer",
    "Expected",
    "Fault",
    "LossEstimate",
    "Quorum",
    "Schedule",
    "Swarm",
    "SwarmSettings",
    "estimate_of_run",
    "gather",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"layerwise.swarm.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
