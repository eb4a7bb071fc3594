"""The zones of the depth of each model, and the clearest zone of similar hidden states with what lies around it.

State j is what layer j - 1 passes on. The layers that write the states of the zone are the middle, those before it the
beginning and those after it the ending (figures 3 and 14 of the Painters, which count them by eye). A sweep of 10
layers and more also divides the depth into zones, with a test of how many (`layerwise.report.derived.zones`); there the
longest zone is the middle.
"""

from __future__ import annotations

from dataclasses import dataclass

from layerwise.report.comparison.compared import Compared, ComparedRun
from layerwise.report.derived.similarity import Zone, clearest_zone, contrast_bounds, matrix
from layerwise.report.derived.zones import PlanZones, trained_zones


@dataclass(frozen=True, slots=True)
class ModelZone:
    """The clearest zone of one model by one similarity, with the bounds of its contrast, and the depth of the model."""

    model: str
    metric: str
    zone: Zone
    bounds: tuple[float, float] | None
    depth: int

    @property
    def beginning(self) -> int:
        """Layers before the zone."""
        return self.zone.first - 1

    @property
    def middle(self) -> int:
        """Layers of the zone."""
        return 1 + self.zone.last - self.zone.first

    @property
    def ending(self) -> int:
        """Layers after the zone."""
        return self.depth - self.zone.last


def zones(compared: Compared, metric: str) -> tuple[ModelZone, ...]:
    """The clearest zone of every model whose similarity was measured and that is deep enough for one."""
    every = (_zone(run, metric) for run in compared.runs)
    return tuple(zone for zone in every if zone is not None)


def _zone(run: ComparedRun, metric: str) -> ModelZone | None:
    values, lows, highs = (matrix(run.evidence.run, metric, bound) for bound in ("value", "low", "high"))
    zone = clearest_zone(values) if values is not None else None
    if values is None or zone is None:
        return None
    bounds = contrast_bounds(lows, highs, zone.first, zone.last) if lows is not None and highs is not None else None
    return ModelZone(run.name, metric, zone, bounds, len(values) - 1)


def partitions(compared: Compared) -> dict[str, PlanZones]:
    """The zones of every model as trained, of those that are deep enough and whose states were compared."""
    every = {run.name: trained_zones(run.evidence.run) for run in compared.runs}
    return {name: zones for name, zones in every.items() if zones is not None}
