"""Growth training as a value: which layers learn when, what that costs, and how it is told.

    phase           `Phase`: a share of the steps and what is particular to it
    schedule        `GrowthSchedule`: phases, in order, for models of one depth
    apportionment   whole steps for shares of them
    layer_text      the layers of a phase as text
    form            the written form of a schedule, as JSON and YAML hold it

Standard library only: no torch, no model.
"""

from __future__ import annotations

from layerwise.plan.growth.phase import Phase
from layerwise.plan.growth.schedule import GrowthSchedule

__all__ = ["GrowthSchedule", "Phase"]
