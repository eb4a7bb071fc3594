"""How long the slowest token of a rehearsal may take, known before it begins.

A token that meets a lost node waits for the deadline of a hop, perhaps for that of a check, and then for the replay:
the node that takes over runs every pass that its predecessor ran, behind the other requests that it takes over as well.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerwise.swarm.routing.deadlines import DeadlineRule
from layerwise.swarm.settings import SwarmSettings


@dataclass(frozen=True, slots=True)
class Load:
    """What a swarm carries: requests at once, the `depth` of the model and the most layers on one node, the longest
    prompt and the tokens added to it; `hop` and `layer` are the most seconds that either takes."""

    streams: int
    depth: int
    most_held: int
    prompt: int
    new: int
    hop: float
    layer: float

    @property
    def passes(self) -> int:
        """The passes of a request: one reads the prompt, each later one a token."""
        return self.new

    @property
    def undisturbed(self) -> float:
        """The most seconds of a token where nothing fails: every layer a hop of its own, behind all other requests."""
        return self.streams * self.depth * (self.hop + self.layer)

    @property
    def replay(self) -> float:
        """The most seconds until a node has run again, for every request, all passes on all layers that it holds."""
        return self.streams * (self.hop + self.passes * self.most_held * self.layer)

    def deadline(self, settings: SwarmSettings) -> float:
        """The most seconds that a hop, or a replay, is waited for before its node is late."""
        rule = DeadlineRule(floor=settings.hop_floor, first=settings.first_deadline)
        work = self.most_held * (self.prompt + self.new) * self.streams
        known = rule.factor * (self.undisturbed + self.replay)
        return max(rule.floor, rule.first + rule.first_per_work * work, known)


def slowest_token(load: Load, settings: SwarmSettings, losses: int) -> float:
    """The bound, in seconds, for a token during which at most so many nodes are lost.

    losses x (2 deadlines + replay) + the token itself, twice where it is begun again
    """
    return losses * (2 * load.deadline(settings) + load.replay) + 2 * load.undisturbed
