"""BabyLM's aggregate as it is printed: with the files and the examples of each part."""

import re
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
    head, columns, line = (
        re.split(r"\s{2,}", text.strip()) for text in aggregate_lines(_run(*parts, total)).split("\n")
    )
    assert head == ["BabyLM's aggregate of 2023, 0.5 blimp + 0.3 glue + 0.2 msgs, in points:"]
    assert columns == ["arm", "aggregate", "blimp", "glue", "msgs"]
    assert line == ["elc", "39.6, partial", "52.8 (1,152 examples)", "43.9 (10 of 11 files, 160 examples)", "0.0"]
    *_, last = aggregate_lines(_run(*parts[:2])).split("\n")
    absent = "– (0 of 11 files)"
    assert re.split(r"\s{2,}", last.strip()) == ["elc", "–", "52.8 (1,152 examples)", absent, absent]
    assert aggregate_lines(_run()) == ""
