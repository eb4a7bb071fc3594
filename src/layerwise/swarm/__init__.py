"""Serve a model across several nodes and keep answering when some of them fail.

    swarm = layerwise.swarm.gather(stack, nodes=8, replicas=2, address="auto")    # omit `address` to stay in this
        process
    answer = swarm.generate(ids, max_new_tokens=64)

A layer without a live replica is skipped. `answer.missing` lists such layers, and `answer.expected` is their cost.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from layerwise.swarm.answer import Answer, ExpectedCost
    from layerwise.swarm.estimate import LossEstimate, read_loss_estimate
    from layerwise.swarm.gathering import gather
    from layerwise.swarm.nodes.local import Fault, Schedule
    from layerwise.swarm.settings import Quorum, SwarmSettings
    from layerwise.swarm.swarm import Swarm

_MODULES = {
    "Answer": "answer",
    "ExpectedCost": "answer",
    "Fault": "nodes.local",
    "LossEstimate": "estimate",
    "Quorum": "settings",
    "Schedule": "nodes.local",
    "Swarm": "swarm",
    "SwarmSettings": "settings",
    "read_loss_estimate": "estimate",
    "gather": "gathering",
}

__all__ = [
    "Answer",
    "ExpectedCost",
    "Fault",
    "LossEstimate",
    "Quorum",
    "Schedule",
    "Swarm",
    "SwarmSettings",
    "gather",
    "read_loss_estimate",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"layerwise.swarm.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
