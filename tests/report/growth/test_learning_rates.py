"""The learning rates that were tried: sorted as numbers, chosen once."""

from __future__ import annotations

from layerwise.report.growth.learning_rates import tunings
from layerwise.report.growth.lookup import GrowthScores
from layerwise.results.rows import Score
from report.grown import row


def swept(chosen: str, *rates: str) -> list[Score]:
    """A sweep whose loss falls from rate to rate as given."""
    losses = [row("rates", "a", rate, "nll", 5.0 - index) for index, rate in enumerate(rates)]
    return [*losses, row("rates", "a", chosen, "chosen", 1.0)]


def test_rates_are_sorted_as_numbers() -> None:
    (tuning,) = tunings(GrowthScores.of(swept("3e-05", "0.1", "1e-4", "3e-05")))
    assert list(tuning.losses) == [3e-5, 1e-4, 0.1]
    assert tuning.chosen == 3e-5


def test_an_end_is_the_least_or_the_greatest_of_several() -> None:
    ends = {chosen: tunings(GrowthScores.of(swept(chosen, "1", "2", "3")))[0].at_end for chosen in ("1", "2", "3")}
    assert ends == {"1": True, "2": False, "3": True}
    assert not tunings(GrowthScores.of(swept("1", "1")))[0].at_end


def test_the_least_loss_is_asked_and_not_assumed() -> None:
    assert tunings(GrowthScores.of(swept("3", "1", "2", "3")))[0].is_least
    assert not tunings(GrowthScores.of(swept("2", "1", "2", "3")))[0].is_least


def test_a_rate_that_is_marked_as_not_chosen_is_not() -> None:
    rows = [row("rates", "a", "1", "nll", 4.0), row("rates", "a", "1", "chosen", 0.0)]
    assert tunings(GrowthScores.of(rows))[0].chosen is None


def test_what_is_no_rate_is_left_out() -> None:
    (tuning,) = tunings(GrowthScores.of([row("rates", "a", "all", "nll", 4.0), row("rates", "a", "2", "nll", 4.0)]))
    assert list(tuning.losses) == [2.0]
