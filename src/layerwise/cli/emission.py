"""A growth schedule from the rows of a diagnosis: allocated, explained layer by layer, and written to a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from layerwise.cli.screen import output, write
from layerwise.errors import MeasureError, PlanError, RunError
from layerwise.measure.importance import SOURCES, importance_of, source_of
from layerwise.plan.growth.allocation import LEVELS, MARGIN, Allocation, allocation, check_terms, explain_allocation
from layerwise.plan.growth.words import chart
from layerwise.results import Run
from layerwise.results.pedigree import trained_models
from layerwise.results.run import MANIFEST
from layerwise.train.growth.schedule_file import write_schedule

_OF_A_DIAGNOSIS = "curve_tokens:"
"""How a setting begins that the manifest of every diagnosis has, and no other."""

_MARGIN = "margin:"


@dataclass(frozen=True, slots=True)
class Emission:
    """What schedule is asked for: where it goes, how finely and how much it spends.

    `margin` is the smallest effect that counts, in nats per token; `None` is that of the diagnosis. Whatever can be
    refused before anything is measured is refused when this is made: a file that is there already, a folder that is
    not, and terms that no allocation can be made by.
    """

    file: Path
    levels: int
    spend: float | None
    margin: float | None

    def __post_init__(self) -> None:
        if self.file.exists():
            raise PlanError(f"{self.file} is there already; name another file for the schedule, or remove that one")
        if not self.file.absolute().parent.is_dir():
            raise PlanError(f"there is no folder {self.file.parent} for the schedule {self.file.name}; make it first")
        check_terms(margin=MARGIN if self.margin is None else self.margin, levels=self.levels, spend=self.spend)


def is_run(model: str) -> bool:
    """Whether what was given for a model is the folder of a run."""
    return (Path(model) / MANIFEST).is_file() and not (Path(model) / "config.json").exists()


def emit(folder: Path, asked: Emission) -> None:
    """Allocate a schedule by the importance that the run in `folder` has measured; explain it, and write it.

    Raises what `allocated` raises.
    """
    found, source = allocated(folder, levels=asked.levels, spend=asked.spend, margin=asked.margin)
    schedule = found.schedule()
    write_schedule(schedule, asked.file)
    write(output, explain_allocation(found))
    write(output, f"effects: {SOURCES[source]}")
    write(output, chart(schedule))
    write(output, f"schedule: {asked.file}")


def allocated(
    folder: Path, *, levels: int = LEVELS, spend: float | None = None, margin: float | None = None
) -> tuple[Allocation, str]:
    """What each layer is given by the importance that the run in `folder` has measured, and which of `SOURCES` that is.

    Raises `RunError` for a run that is no diagnosis, or one without what importance is taken from; it says which
    command makes that. Raises `PlanError` where no layer has an effect.
    """
    with Run.open(folder) as run:
        scores = run.store.scores()
        source = source_of(scores)
        if source is None:
            raise RunError(_lacking(run))
        try:
            importance = importance_of(scores)
        except MeasureError as refusal:
            raise RunError(f"{folder}: {refusal}") from None
        smallest = margin if margin is not None else _margin_of(run)
    return allocation(importance, margin=smallest, levels=levels, spend=spend), source


def _margin_of(run: Run) -> float:
    """The margin that the verdicts of a run were given by."""
    found = [setting.removeprefix(_MARGIN) for setting in run.manifest.families if setting.startswith(_MARGIN)]
    return float(found[0]) if found else MARGIN


def _lacking(run: Run) -> str:
    """Why a run has no importance, and which command measures it."""
    models = trained_models(run.folder)
    settings = run.manifest.families
    if models:
        return (
            f"{run.folder} is a run of layerwise train, which does not say which layers matter; diagnose a model of "
            f"it: layerwise diagnose {models[0]} --text PATH --emit-schedule FILE"
        )
    if not any(setting.startswith(_OF_A_DIAGNOSIS) for setting in settings):
        return (
            f"{run.folder} is a run of another kind ({', '.join(settings[:3])}), which does not say what skipping each "
            "layer costs; make one that does: layerwise diagnose MODEL --text PATH --emit-schedule FILE"
        )
    notes = [note.text for note in run.store.notes("ablation")]
    why = notes[0] if notes else "the part was not asked for, or not carried out yet"
    return (
        f"{run.folder} is a diagnosis without an ablation ({why}), and a schedule is made from what skipping each "
        f"layer costs: layerwise diagnose {run.manifest.model} --text PATH --parts ablation --emit-schedule FILE"
    )
