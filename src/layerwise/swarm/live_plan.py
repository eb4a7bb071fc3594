"""What is left of a plan when layers are missing: which visits run, in which order, where routes through them are cut,
and what that plan is called."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from layerwise.plan import Plan, Step
from layerwise.plan import plan as stages
from layerwise.plan.edits import map_visits
from layerwise.swarm.messages import RemoteLayer, RemoteVisit
from layerwise.swarm.route import Leg


@dataclass(frozen=True, slots=True)
class LivePlan:
    """The plan that runs in place of the `requested` one, without `missing` layers; visits keep their cache `slot`."""

    requested: Plan
    running: Plan
    steps: tuple[Step, ...]
    visits: tuple[RemoteVisit, ...]
    missing: frozenset[RemoteLayer]

    @classmethod
    def of(
        cls,
        requested: Plan,
        missing: Collection[RemoteLayer] = (),
        replaced: Mapping[RemoteLayer, RemoteLayer] | None = None,
    ) -> LivePlan | None:
        """Return `requested` without the `missing` layers, with the `replaced` ones exchanged; `None` if empty."""
        others = {layer: other for layer, other in (replaced or {}).items() if layer not in missing}
        slots = [
            (slot, step)
            for slot, step in enumerate(requested.steps())
            if _layer(step.layer, step.source) not in missing
        ]

        def onto(visit: stages.Visit) -> stages.Visit | None:
            layer = _layer(visit.layer, visit.source)
            if layer in missing:
                return None
            other = others.get(layer)
            return visit if other is None else replace(visit, layer=other.number, source=other.source or None)

        running = map_visits(requested, onto)
        if running is None:
            return None
        steps = running.steps()
        visits = tuple(
            RemoteVisit(slot, _layer(step.layer, step.source), step.sublayer)
            for (slot, _), step in zip(slots, steps, strict=True)
        )
        gone = frozenset(layers_of(requested)) & frozenset(missing)
        return cls(requested, running, tuple(steps), visits, gone)

    @property
    def missing_numbers(self) -> tuple[int, ...]:
        return tuple(sorted(layer.number for layer in self.missing))

    def seams(self) -> tuple[int, ...]:
        starts = {0}
        for number, step in enumerate(self.steps):
            if step.opens:
                starts.add(number)
            if step.closes:
                starts.add(number + 1)
        return tuple(sorted(starts))


def layers_of(plan: Plan) -> tuple[RemoteLayer, ...]:
    return tuple(dict.fromkeys(_layer(step.layer, step.source) for step in plan.steps()))


def _layer(number: int, source: str | None) -> RemoteLayer:
    return RemoteLayer(number, source or "")


def cut_at_seams(legs: Sequence[Leg], live: LivePlan) -> tuple[Leg, ...]:
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
