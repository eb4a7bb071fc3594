"""Where a route has to be cut: between two nodes the router gathers what the branches of a group arrived at."""

from __future__ import annotations

from collections.abc import Sequence

from layerwise.swarm.messages import RemoteVisit
from layerwise.swarm.routing.live_plan import LivePlan
from layerwise.swarm.routing.route import Leg


def cut_at_seams(legs: Sequence[Leg], live: LivePlan) -> tuple[Leg, ...]:
    """The legs, with every seam of the plan at the beginning of one."""
    seams = {live.visits[step] for step in live.seams() if step < len(live.visits)}
    cut: list[Leg] = []
    for leg in legs:
        run: list[RemoteVisit] = []
        for visit in leg.visits:
            if run and visit in seams:
                cut.append(Leg(leg.node, tuple(run)))
                run = []
            run.append(visit)
        cut.append(Leg(leg.node, tuple(run)))
    return tuple(cut)
