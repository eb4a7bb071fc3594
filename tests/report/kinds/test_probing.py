"""The report of a probe from planted rows: where a feature is read best, what takes training, which side gains more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from layerwise.experiments.summary import summary
from layerwise.report import ReportData, markdown, render
from layerwise.report.kinds.probing import PROBING_KIND, by_state, findings
from layerwise.report.marks import Lines
from layerwise.results.rows import Score

FEATURES = {"length": "surface", "part_of_speech": "linguistic"}


def rows(gain: float = 0.2, difference: float = 0.1, arms: tuple[str | None, ...] = (None,)) -> Iterator[Score]:
    """Two features over three states, the last the best; the twin has `gain` less, with an interval of 0.05."""
    for arm in arms:
        for seed in (0, 1) if arm else (None,):
            own = {"arm": arm, "seed": seed}
            for layer in range(3):
                for task, side in FEATURES.items():
                    value = 0.6 + 0.1 * layer + 0.02 * (seed or 0)
                    at = {"layer": layer, "task": task, "part": side, "documents": 40, **own}
                    yield Score("probing", "accuracy", value, value - 0.05, value + 0.05, **at)
                    yield Score("probing", "accuracy", 0.5, 0.45, 0.55, **at, against="shuffled")
                    yield Score("probing", "accuracy", value - gain, 0.1, 0.9, **at, against="random_twin")
                    above = (gain, gain - 0.05, gain + 0.05)
                    yield Score("probing", "accuracy_above", *above, **at, against="random_twin")
                yield Score(
                    "probing", "difference", difference, difference - 0.05, difference + 0.05, layer=layer, **own
                )


def data(*scores: Score) -> ReportData:
    return ReportData({"model": "m", "corpus": "c"}, (), scores)


def test_the_sentences_name_the_best_state_and_what_training_gives() -> None:
    text = " ".join(findings(data(*rows())))
    assert "part of speech: read best at state 2, 80.0 % [75.0, 85.0]" in text
    assert "+20.0 points [+15.0, +25.0] beside the untrained twin's." in text
    assert "Training gives linguistic features more than surface ones at the states 0, 1, 2" in text


@pytest.mark.parametrize(("gain", "difference"), [(0.01, 0.01), (-0.01, -0.01)])
def test_what_an_untrained_model_gives_too_is_not_called_learned(gain: float, difference: float) -> None:
    text = " ".join(findings(data(*rows(gain, difference))))
    assert "nothing shows that it takes training" in text
    assert "At no state is it resolvable" in text


def test_surface_features_may_gain_more() -> None:
    assert "gives surface features more than linguistic ones" in " ".join(findings(data(*rows(difference=-0.2))))


def test_arms_are_told_apart_and_seeds_are_averaged() -> None:
    made = data(*rows(arms=("ltg", "elc")))
    drawn = list(by_state(made))
    assert len([row for row in drawn if row.against is None]) == 2 * len(FEATURES) * 3
    assert len([row for row in drawn if row.against == "shuffled"]) == len(FEATURES) * 3
    (row,) = (each for each in drawn if (each.arm, each.task, each.layer, each.against) == ("elc", "length", 0, None))
    assert row.value == pytest.approx(0.61)
    assert "length of a word of elc: read best" in " ".join(findings(made))


def test_the_lines_have_their_nulls_and_the_page_is_whole() -> None:
    made = data(*rows())
    (mark,) = (part for part in PROBING_KIND.sections[0].parts if isinstance(part, Lines))
    (picture,) = mark.pictures(made)
    assert picture.choices[0].options == ("length of a word", "part of speech")
    for figure in picture.variants.values():
        assert {"shuffled labels", "untrained twin"} <= {trace.get("name") for trace in figure.traces}
    assert "What is read from the hidden states" in render(made)
    for text in (markdown(made), summary(made)):
        assert "part of speech: read best at state 2" in text
