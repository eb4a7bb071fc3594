"""A model whose layers live on many machines, and that answers while some of them die.

    swarm = layerwise.swarm.gather(stack, nodes=8, replicas=2)                    # in this process, to try it out
    swarm = layerwise.swarm.gather(stack, nodes=8, replicas=2, address="auto")    # on a Ray cluster
    answer = swarm.generate(ids, max_new_tokens=64)
    answer.tokens, answer.plan, answer.missing, answer.expected

Where a replica of a lost layer is left, it repeats what the dead node had done, and the tokens stay the same. Where
none is, the model goes on with the layers that are left, and the answer says which these are and what that is expected
to cost. Below the quorum there is a refusal. Names are resolved when they are first used.
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
