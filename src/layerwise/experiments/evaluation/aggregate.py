"""BabyLM's aggregate of the models of a run: stored beside the suites that make it, and printed with its parts."""

from __future__ import annotations

from layerwise.data.suites.blimp import PHENOMENA
from layerwise.measure.language.babylm import FILES, WEIGHTS, babylm_rows
from layerwise.results import Run
from layerwise.results.selection import Rows
from layerwise.results.vocabulary import BABYLM

AGGREGATED = ("blimp", "supplement", "glue", "msgs")
"""The suites that the aggregate is made of."""


def store_aggregate(run: Run) -> None:
    """Store the aggregate of every model and arm as trained, and its parts, of the rows that are in the run."""
    phenomena = {paradigm: name for name, paradigms in PHENOMENA.items() for paradigm in paradigms}
    rows = [row for suite in AGGREGATED for row in run.store.scores(suite)]
    trained = [row for row in rows if row.plan is None]
    run.store.replace_scores(BABYLM, babylm_rows(trained, phenomena))


def aggregate_lines(run: Run) -> str:
    """The aggregate of every arm with its parts, each with its examples and, where it is not whole, its files."""
    rows = Rows(run.store.scores(BABYLM)).where(seed=None)
    weights = " + ".join(f"{weight:g} {part}" for part, weight in WEIGHTS.items())
    lines = [f"BabyLM's aggregate of 2023, {weights}, in points:"]
    for arm, of in rows.by("arm").items():
        parts, file_counts = [], {part: of.value(task=part, metric="files") for part in FILES}
        for part, count in FILES.items():
            own = of.one(task=part, metric="part")
            files = 0 if own is None else round(file_counts[part] or 0.0)
            value = "none" if own is None else f"{own.value:.1f}"
            counted = [] if files == count else [f"{files} of {count} files"]
            counted += [] if own is None or own.documents is None else [f"{own.documents:,} examples"]
            parts.append(f"{value} ({', '.join(counted)})" if counted else value)
        total = of.one(metric="aggregate")
        if total is None:
            shown = "none, for want of a part"
        else:
            bounds = "" if total.low is None else f" [{total.low:.1f}, {total.high:.1f}]"
            whole = all(round(file_counts[part] or 0.0) == count for part, count in FILES.items())
            shown = f"{total.value:.1f}{bounds}{'' if whole else ', partial'}"
        listed = ", ".join(f"{part} {value}" for part, value in zip(FILES, parts, strict=True))
        lines.append(f"  {arm:24} {shown}: {listed}")
    return "\n".join(lines) if len(lines) > 1 else ""
