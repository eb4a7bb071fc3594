"""Combine runs of the same command for comparison. Their texts, numbers of tokens and plans may differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from layerwise.errors import RunError
from layerwise.page.data import ReportData
from layerwise.page.formatting import ABSENT, join_words
from layerwise.page.kinds import load_kinds
from layerwise.results.manifest import MEASURED, model_name
from layerwise.results.rows import Score
from layerwise.results.vocabulary import MODEL
from layerwise.studies.compare.over_depth import compute_curves, list_layer_effects
from layerwise.studies.compare.over_models import compare_curves, judge_over_models

COMPARABLE = {"sweep": "layerwise sweep", "diagnosis": "layerwise diagnose"}
"""Kinds of run that can be compared, and their commands."""
FEWEST = 2


def compare_side_by_side(folders: Sequence[tuple[str, ReportData]]) -> ReportData:
    """Return the rows that compare run directories. The column `variant` has the name of the model."""
    if len(folders) < FEWEST:
        given = "none" if not folders else f"only {folders[0][0]}"
        raise RunError(f"a comparison requires at least two runs, got {given}. Run layerwise compare RUN RUN ...")
    _reject_same_run(folders)
    (first, kind), *others = ((folder, _find_kind(folder, run)) for folder, run in folders)
    for folder, other in others:
        if other != kind:
            raise RunError(
                f"all runs must be of the same kind, but {first} is a {kind} and {folder} is a {other}. Compare sweeps "
                "with sweeps, and diagnoses with diagnoses."
            )
    named = dict(zip(_list_names(folders), folders, strict=True))
    runs = {name: run for name, (_, run) in named.items()}
    texts = dict.fromkeys(str(run.manifest.get("corpus") or "an unnamed corpus") for run in runs.values())
    manifest = {
        "corpus": join_words(list(texts)),
        "kind": kind,
        "runs": {name: {"folder": folder, **run.manifest} for name, (folder, run) in named.items()},
    }
    rows = (*_name_models(named), *compute_curves(runs), *list_layer_effects(runs), *judge_over_models(runs))
    data = ReportData(manifest, (), rows, level=folders[0][1].level, runs=runs)
    return replace(data, scores=(*rows, *compare_curves(data)))


def _name_models(named: Mapping[str, tuple[str, ReportData]]) -> Iterator[Score]:
    for name, (folder, run) in named.items():
        counts = {
            "layers": run.depth or None,
            "parameters": run.rows.value(measure="run", metric="parameters"),
            **{key: run.manifest.get(key) for key in ("documents", "tokens")},
        }
        columns: dict[str, Any] = {
            "variant": name,
            "condition": PurePath(folder).name,
            "kind": str(run.manifest.get("corpus") or ABSENT),
        }
        for metric, count in counts.items():
            if isinstance(count, int | float):
                yield Score(MODEL, metric, float(count), **columns)


def _reject_same_run(folders: Sequence[tuple[str, ReportData]]) -> None:
    seen: dict[tuple[str, ...], str] = {}
    for folder, data in folders:
        earlier = seen.setdefault(tuple(str(data.manifest.get(name)) for name in MEASURED), folder)
        if earlier != folder and data.manifest.get("weight_hash"):
            raise RunError(f"{earlier} and {folder} are the same run, which would count twice. Pass each run once.")


def _find_kind(folder: str, run: ReportData) -> str:
    present = [kind.name for kind in load_kinds() if kind.is_of(run)]
    comparable = [name for name in present if name in COMPARABLE]
    if not comparable or len(comparable) < len(present):
        other = join_words([name for name in present if name not in COMPARABLE]) or "no rows"
        raise RunError(
            f"{folder} must be a run of {' or '.join(COMPARABLE.values())}, got a run of another command ({other})."
            " Pass runs of these commands."
        )
    return comparable[-1]


def _list_names(folders: Sequence[tuple[str, ReportData]]) -> list[str]:
    plain = [model_name(str(data.manifest.get("model") or "unnamed model")) for _, data in folders]
    known_by = [
        plain,
        *(
            [f"{name} ({of(folder)})" for name, (folder, _) in zip(plain, folders, strict=True)]
            for of in (lambda folder: PurePath(folder).name, str)
        ),
    ]
    return [next(names[at] for names in known_by if names.count(names[at]) == 1) for at in range(len(plain))]
