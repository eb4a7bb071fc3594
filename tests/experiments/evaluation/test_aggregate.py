"""BabyLM's aggregate as it is printed: with the files and the examples of each part."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from layerwise.experiments.evaluation.run import aggregate_lines
from layerwise.measure.language.babylm import BABYLM
from layerwise.results.rows import Score


def _run(*rows: Score) -> Any:
    return SimpleNamespace(store=SimpleNamespace(scores=lambda measure: rows))


def _part(name: str, value: float, files: int, examples: int | None) -> tuple[Score, Score]:
    return (
        Score(BABYLM, "part", value, task=name, arm="elc", documents=examples),
        Score(BABYLM, "files", float(files), task=name, arm="elc"),
    )


def test_the_aggregate_says_of_how_much_it_is() -> None:
    parts = (*_part("blimp", 52.77, 17, 1152), *_part("glue", 43.9, 10, 160), *_part("msgs", 0.0, 11, None))
    total = Score(BABYLM, "aggregate", 39.56, arm="elc")
    printed = aggregate_lines(_run(*parts, total)).splitlines()[1].split(maxsplit=1)[1]
    assert printed == ("39.6, partial: blimp 52.8 (1,152 examples), glue 43.9 (10 of 11 files, 160 examples), msgs 0.0")
    printed = aggregate_lines(_run(*parts[:2])).splitlines()[1].split(maxsplit=1)[1]
    assert printed.startswith("none, for want of a part: blimp 52.8 (1,152 examples), glue none (0 of 11 files), ")
    assert aggregate_lines(_run()) == ""
