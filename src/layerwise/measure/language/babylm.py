"""The aggregate score of BabyLM 2023, from BLiMP, GLUE and MSGS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from layerwise.data.suites.glue import FORMS
from layerwise.data.suites.minimal_pairs import PHENOMENA
from layerwise.measure.stats.seeds import seed_interval
from layerwise.results.rows import Score
from layerwise.results.vocabulary import BABYLM, PARADIGM

WEIGHTS = {"blimp": 0.5, "glue": 0.3, "msgs": 0.2}
FILES = {"blimp": 17, "glue": 11, "msgs": 11}
"""Number of files in each part of the score."""

MERGED = {"s-selection": "argument_structure"}
GLUE = {name: form.metrics[0] for name, form in FORMS.items() if name not in ("stsb", "wnli")}
"""The GLUE and SuperGLUE tasks of BabyLM, and the metric of each."""

_PHENOMENON = {paradigm: name for name, paradigms in PHENOMENA.items() for paradigm in paradigms}
MSGS = (
    *("main_verb", "control_raising", "syntactic_category", "lexical_content_the", "relative_position"),
    *(
        f"{linguistic}_{surface}"
        for linguistic in ("main_verb", "control_raising", "syntactic_category")
        for surface in ("lexical_content_the", "relative_position")
    ),
)
"""The features of the control tasks, followed by the pairs of features of the ambiguous tasks."""

MSGS_TASKS = {
    f"{kind} {name.replace('relative_position', feature)}": name
    for name in MSGS
    for kind in ("control", "ambiguous")
    for feature in ("relative_position", "relative_token_position")
}
"""The MSGS task of each file name."""

Model = tuple[str, int]


def aggregate(parts: Mapping[str, float]) -> float:
    """Return the weighted sum of the three parts of the score.

    >>> round(aggregate({"blimp": 75.8, "glue": 73.7, "msgs": 29.4}), 1)
    65.9
    """
    return sum(WEIGHTS[part] * parts[part] for part in WEIGHTS)


def babylm_rows(rows: Iterable[Score]) -> list[Score]:
    """Compute the BabyLM score of each variant for every seed, and its mean over seeds.

        blimp   mean accuracy over 17 files: the 12 phenomena of BLiMP and the 5 of its supplement
        glue    mean over 11 tasks: Matthews' correlation of CoLA, F1 of MRPC and QQP, accuracy of the others
        msgs    mean Matthews' correlation over 11 tasks, 5 control and 6 ambiguous ones

    Returns rows of measure `babylm`: each `part` and the `aggregate` in points (0 to 100), and the number of `files`.
    If files are missing, a part is the mean over the remaining ones. The aggregate needs all three parts.
    """
    files: dict[Model, dict[str, dict[str, list[tuple[float, int]]]]] = {}
    for row in rows:
        if row.variant is None or row.seed is None or row.tuning_seed is not None or row.against is not None:
            continue
        counted = _classify_row(row)
        if counted is not None:
            part, file = counted
            cells = files.setdefault((row.variant, row.seed), {}).setdefault(part, {}).setdefault(file, [])
            cells.append((row.value, row.documents or 1))
    results = [row for model, parts in files.items() for row in _model_rows(model, parts)]
    return [*results, *_mean_rows(results)]


def _classify_row(row: Score) -> tuple[str, str] | None:
    if row.measure in ("blimp", "supplement") and row.metric == "accuracy" and row.kind == PARADIGM:
        file = f"supplement {row.task}" if row.measure == "supplement" else _PHENOMENON.get(row.task)
        return None if file is None else ("blimp", MERGED.get(file, file))
    if row.measure == "glue":
        return ("glue", row.task) if GLUE.get(row.task) == row.metric else None
    if row.measure == "msgs" and row.metric == "mcc":
        return ("msgs", MSGS_TASKS[row.task]) if row.task in MSGS_TASKS else None
    return None


def _model_rows(model: Model, parts: Mapping[str, Mapping[str, list[tuple[float, int]]]]) -> list[Score]:
    variant, seed = model
    rows = []
    points = {}
    for part in WEIGHTS:
        if part in parts:
            files = [tuple(zip(*cells, strict=True)) for cells in parts[part].values()]
            means = [np.average(values, weights=counts) for values, counts in files]
            points[part] = 100 * float(np.mean(means))
            examples = sum(sum(counts) for _, counts in files)
            rows.append(Score(BABYLM, "part", points[part], task=part, variant=variant, seed=seed, documents=examples))
            rows.append(Score(BABYLM, "files", float(len(means)), task=part, variant=variant, seed=seed))
    if set(points) == set(WEIGHTS):
        rows.append(Score(BABYLM, "aggregate", aggregate(points), variant=variant, seed=seed))
    return rows


def _mean_rows(rows: Iterable[Score]) -> list[Score]:
    variants: dict[tuple[str, str, str], list[Score]] = {}
    for row in rows:
        variants.setdefault((str(row.variant), row.task, row.metric), []).append(row)
    means = []
    for (variant, task, metric), models in variants.items():
        values = [row.value for row in models]
        low, high = seed_interval(values) if metric != "files" else (None, None)
        fewest = min((row.documents for row in models if row.documents is not None), default=None)
        means.append(
            Score(BABYLM, metric, float(np.mean(values)), low, high, task=task, variant=variant, documents=fewest)
        )
    return means
