"""Pairs within `minutes`, and BabyLM's aggregate."""

import re
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.command import layerwise
from layerwise.data.suites import generated_pairs
from layerwise.data.suites.minimal_pairs import MinimalPair, PairSet
from layerwise.errors import OptionError
from layerwise.experiments.evaluation import minutes as module
from layerwise.experiments.evaluation.minutes import chosen_limit, limit_within, resolutions
from layerwise.experiments.evaluation.run import aggregate_lines
from layerwise.experiments.text_length import USED
from layerwise.measure.language.babylm import BABYLM
from layerwise.results.rows import Score

sizes = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def suite(counts: Sequence[int], name: str = "p") -> PairSet:
    pairs = [MinimalPair("a", "b", f"{name}{at}", "", "") for at, count in enumerate(counts) for _ in range(count)]
    return PairSet(name, name, tuple(pairs))


@given(sizes, st.floats(0, 300))
def test_the_limit_is_the_largest_that_fits(counts: list[int], pairs: float) -> None:
    limit = limit_within(pairs, counts)

    def scored(limit: int) -> int:
        return sum(min(limit, count) for count in counts)

    assert limit == 0 or scored(limit) <= pairs
    assert limit == max(counts) or scored(limit + 1) > pairs


class Clock:
    def __init__(self, opening: float, each: float) -> None:
        self.now, self.opening, self.each = 0.0, opening, each
        self.scored: list[set[str]] = []

    def open(self) -> Any:
        self.now += self.opening

    def preferences(self, _: object, pairs: Sequence[MinimalPair], **options: Any) -> np.ndarray:
        self.now += self.each * len(pairs)
        self.scored.append({pair.paradigm for pair in pairs})
        return np.ones(len(pairs))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(opening=5.0, each=0.05)
    for name in ("perf_counter", "monotonic"):
        monkeypatch.setattr(time, name, lambda: clock.now)
    monkeypatch.setattr(module, "preferences", clock.preferences)
    return clock


@pytest.mark.parametrize(("minutes", "models"), [(1, 1), (3, 1), (3, 2), (10, 3)])
def test_it_ends_before_the_minutes_do_and_uses_most_of_them(clock: Clock, minutes: int, models: int) -> None:
    suites = [suite([9_000, 5_000]), suite([400], "q")]
    limit, text = chosen_limit(
        minutes, clock.open, suites, models=models, began=0.0, temperature=1.0, too_long="refuse"
    )
    pairs = sum(min(limit, count) for count in (9_000, 5_000, 400))
    end = clock.now + (models - 1) * clock.opening + models * clock.each * pairs
    assert 0.95 * USED * 60 * minutes < end <= USED * 60 * minutes
    assert clock.scored == [{"p0", "p1", "q0"}] * 2, "pairs of all suites are timed, and the first time warms up"
    assert f"pairs: {pairs:,} of 14,400" in text
    assert f"--limit {limit} scores" in text


def test_too_few_minutes_are_answered_with_as_many_as_do(clock: Clock) -> None:
    clock.each = 1.0
    arguments: dict[str, Any] = {"models": 1, "began": 0.0, "temperature": 1.0, "too_long": "refuse"}
    with pytest.raises(OptionError, match=r"--minutes 1 is too little: a pair of each of 3 .* give --minutes 2"):
        chosen_limit(1, clock.open, [suite([50, 50, 50])], **arguments)
    clock.now = 0.0
    limit, _ = chosen_limit(2, clock.open, [suite([50, 50, 50])], **arguments)
    assert limit


def test_half_of_a_distance_from_chance_takes_four_times_the_pairs() -> None:
    def points(count: int) -> float:
        return float(next(resolutions([suite([count])])).split()[3])

    assert points(4_000) == pytest.approx(100 * (1.961 + 0.842) * 0.5 / 4_000**0.5, rel=0.01)
    assert points(1_000) == pytest.approx(2 * points(4_000), rel=0.01)


def test_the_same_command_scores_the_same_pairs_again(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generated_pairs, "PARADIGMS", dict(islice(generated_pairs.PARADIGMS.items(), 2)))
    choices = iter([3, 2, 5])
    monkeypatch.setattr("layerwise.experiments.evaluation.run.chosen_limit", lambda *_, **__: (next(choices), "chosen"))
    command = ("evaluate", model, "--run", tmp_path / "run", "--minutes")
    first, again, other = (layerwise(*command, minutes) for minutes in (1, 1, 2))
    assert first.code == again.code == other.code == 0, first.err + again.err + other.err
    assert "the first 3 pairs of each paradigm" in first.out
    assert again.out == first.out
    assert "the first 2 pairs of each paradigm" in other.out
    anew = layerwise(*command, "1", "--overwrite")
    assert "the first 5 pairs of each paradigm" in anew.out


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
