"""Experiments that are prepared as objects, as steps: a training that all processes take part in, then a measurement.

This is for the experiments that are not yet written as steps, and goes with the last of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from layerwise.experiments.engines.steps import Completed, Outline, Steps, Unit, UnitSession
from layerwise.experiments.engines.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from layerwise.experiments.experiment import Prepared
    from layerwise.results import Run


@dataclass(frozen=True)
class _Training(Unit[None]):
    prepared: Prepared
    collective: ClassVar[bool] = True

    def carry_out(self, session: UnitSession) -> None:
        self.prepared.spread = session.spread
        self.prepared.train(session.folder, session.reporter)

    def works(self, folder: Path, run: Run | None) -> Iterator[Work]:
        return self.prepared.works(folder, run)


@dataclass(frozen=True)
class _Measurement(Unit[None]):
    prepared: Prepared

    def carry_out(self, session: UnitSession) -> None:
        self.prepared.spread = session.spread
        self.prepared.measure(session.run, session.reporter)


def steps_of(prepared: Prepared) -> Steps:
    """The steps of a prepared experiment."""
    training = _Training(prepared)
    yield Outline(
        prepared.manifest, prepared.describe, recipe=prepared.recipe, folder=prepared.folder, ahead=(training,),
        refuse=prepared.check, discard=prepared.discard, pieces=prepared.carry_out, models=prepared.models_of,
        results=prepared.results, is_empty=prepared.is_empty,
    )  # fmt: skip
    yield from training
    yield from _Measurement(prepared)
    return Completed()
