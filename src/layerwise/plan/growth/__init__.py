"""Growth training as a value: which layers learn when, what that costs, and how it is told.

    phase           `Phase`: a share of the steps and what is particular to it
    schedule        `GrowthSchedule`: phases, in order, for models of one depth
    apportionment   whole steps for shares of them
    layer_text      the layers of a phase as text
    form            the written form of a schedule, as JSON and YAML hold it
    presets         the schedules of the literature, for any depth, and the random control of any schedule
    cost            floating-point operations: what a phase costs, and how many steps a budget buys
    allocation      from the importance of layers to a schedule, by one rule
    words           a schedule in words, and as a chart of depth by time

Standard library only: no torch, no model.
"""

from __future__ import annotations

from layerwise.plan.growth.allocation import Importance, allocate
from layerwise.plan.growth.cost import ModelCost, flops_per_token, layer_shares, share_of_uniform, steps_for
from layerwise.plan.growth.phase import Phase
from layerwise.plan.growth.presets import PRESETS, preset, random_freezing
from layerwise.plan.growth.schedule import GrowthSchedule
from layerwise.plan.growth.words import chart, explain

__all__ = [
    "PRESETS",
    "GrowthSchedule",
    "Importance",
    "ModelCost",
    "Phase",
    "allocate",
    "chart",
    "explain",
    "flops_per_token",
    "layer_shares",
    "preset",
    "random_freezing",
    "share_of_uniform",
    "steps_for",
]
