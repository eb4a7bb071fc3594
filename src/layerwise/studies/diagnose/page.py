"""The page of a diagnosis: every measure by layer, with its null baselines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from layerwise.page.data import ReportData
from layerwise.page.formatting import (
    COUNT,
    DIFFERENCE,
    PERCENT,
    SIGNED,
    Format,
    describe_incomplete,
    format_null,
    label,
    lookup_format,
)
from layerwise.page.kind import Kind, Pivot, Section, Text, join_statements
from layerwise.page.marks import Bars, Lines
from layerwise.results import vocabulary as vocab
from layerwise.results.rows import Score
from layerwise.results.selection import PRESENT
from layerwise.studies.diagnose.page_changes import MANIPULATION_SECTION, PROXIES_SECTION, RECOVERY_SECTION
from layerwise.studies.diagnose.page_layers import (
    LAYERS_SECTION,
    VERDICT_NAMES,
    VERDICT_SLOTS,
    list_next_steps,
    summarize,
)
from layerwise.studies.diagnose.page_weights import DELTAS_SECTION, HALVES, PREDICTION_SECTION

SILENCED = {vocab.SKIPPING: "skipped", "mean_ablate": "mean output"}
REPLACED = {
    "neighbor_copy": "copy of neighbor",
    "neighbor_average": "mean of neighbors",
    "random": "random weights",
}
INTERVENTIONS = {**SILENCED, **REPLACED}
INTERVENTION_SLOTS = {name: at for at, name in enumerate(INTERVENTIONS)}
SILENCED_PARTS = {None: "Whole layer silenced", "attn": "Attention alone silenced", "mlp": "MLP alone silenced"}
RACED = {
    "evaluations": ("layer tokens (tokens times layers run)", COUNT),
    "evaluations_full": ("layer tokens of a full sweep", COUNT),
    "share": ("share of the full sweep", PERCENT),
    "looks": ("times the results were checked", COUNT),
}


def list_silenced(data: ReportData) -> Iterator[Score]:
    """Yield the effects of silencing a layer, its attention or its MLP, and the null distribution for skipping.

    Silencing means that a layer is skipped, or that its output is replaced by the mean output.
    """
    rows = data.rows.where(measure=vocab.ABLATION, metric=tuple(SILENCED))
    for part, words in SILENCED_PARTS.items():
        own = rows.where(part=part)
        yield from (replace(row, part=words) for row in own.where(against=None))
        yield from (replace(row, part=words) for row in own.where(against=vocab.NO_EFFECT, metric=vocab.SKIPPING))


def list_replaced(data: ReportData) -> Iterator[Score]:
    rows = data.rows.where(measure=vocab.ABLATION, part=None)
    effects = rows.where(metric=tuple(REPLACED), against=None)
    yield from effects
    if effects:
        yield from rows.where(metric=vocab.SKIPPING, against=vocab.NO_EFFECT)


def list_interventions(data: ReportData) -> Iterator[Score]:
    rows = data.rows.where(measure=vocab.ABLATION, task=vocab.ALL, against=None, layer=PRESENT)
    for part in (None, "attn", "mlp"):
        # The cost of skipping a layer is in the first table.
        for row in (row for row in rows.where(part=part) if part or row.metric != vocab.SKIPPING):
            words = INTERVENTIONS.get(row.metric, label(row.metric))
            yield replace(row, part=None, condition=words if part is None else f"{words}, {HALVES[part]}")


def _list_screened(data: ReportData) -> Iterator[str]:
    rows = data.rows.where(measure=vocab.RACING, layer=None)
    facts = [
        f"{words.capitalize()}: {show.number(value)}."
        for metric, (words, show) in RACED.items()
        if (value := rows.value(metric=metric)) is not None
    ]
    if facts:
        yield " ".join(facts)


def _list_tiles(data: ReportData) -> Iterator[tuple[str, str]]:
    yield f"{len(data.rows.where(measure=vocab.DIAGNOSED)):,}", "scores"
    tasks = [task for task in data.rows.where(measure=vocab.ABLATION).axis("task") if task != vocab.ALL]
    if tasks:
        yield f"{len(tasks):,}", "tasks"


def _list_unfinished(data: ReportData) -> str | None:
    families = data.manifest.get("families")
    names = [str(name) for name in families] if isinstance(families, list | tuple) else []
    complete = set(data.rows.where(measure="part").axis("section"))
    finished = complete or data.rows.where(measure=vocab.DIAGNOSED).axis("measure")
    waiting = [name for name in names if name in vocab.DIAGNOSED and name not in finished]
    return describe_incomplete((waiting, "part of this diagnosis")) if waiting else None


DIAGNOSIS = Kind(
    name="diagnosis",
    rank=1,
    measures=vocab.DIAGNOSED,
    answer=join_statements(summarize, None),
    tiles=_list_tiles,
    unfinished=_list_unfinished,
    counts=("documents", "tokens", "window"),
    following=list_next_steps,
    has_published=True,
    sections=(
        LAYERS_SECTION,
        Section(
            anchor=vocab.ABLATION,
            needs={"measure": vocab.ABLATION, "layer": PRESENT},
            parts=(
                Lines(
                    name="ablation-silenced",
                    derive=list_silenced,
                    series="metric",
                    each="part",
                    choices={"Task": "task"},
                    nulls=format_null,
                    show=DIFFERENCE,
                    slots=INTERVENTION_SLOTS,
                    height=260,
                    words=lookup_format(INTERVENTIONS),
                    legend="Interventions",
                    sqrt_scale="default",
                ),
                Lines(
                    name="ablation-replaced",
                    derive=list_replaced,
                    series="metric",
                    choices={"Task": "task"},
                    nulls=format_null,
                    show=DIFFERENCE,
                    slots={name: INTERVENTION_SLOTS[name] for name in REPLACED},
                    words=lookup_format(INTERVENTIONS),
                    legend="Interventions",
                    height=330,
                    sqrt_scale="default",
                ),
                Pivot(
                    name="every-intervention",
                    derive=list_interventions,
                    rows={"layer": "layer"},
                    words=str,
                    across="condition",
                    show=SIGNED,
                    folded=True,
                    order=lambda line: line[0],
                ),
            ),
        ),
        Section(
            anchor=vocab.RACING,
            needs={"measure": vocab.RACING, "metric": vocab.DECISIONS},
            parts=(
                Bars(
                    name="racing",
                    of=lambda row: float(row.tokens) if row.tokens else None,
                    where={"measure": vocab.RACING, "metric": vocab.DECISIONS},
                    series="metric",
                    stacked=True,
                    slots=VERDICT_SLOTS,
                    words=lambda name: VERDICT_NAMES[name],
                    show=Format(axis="tokens spent"),
                    height=320,
                ),
                Text(_list_screened, terminal=False),
            ),
        ),
        DELTAS_SECTION,
        PREDICTION_SECTION,
        RECOVERY_SECTION,
        MANIPULATION_SECTION,
        PROXIES_SECTION,
    ),
)
