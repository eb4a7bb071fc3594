"""The headline, looked up: savings with their bounds, the nulls beside them, and epochs of layers."""

from __future__ import annotations

import math

from layerwise.report import ReportData, render
from layerwise.report.growth.headline import (
    Bounds,
    epoch_rows,
    headline_arm,
    headline_rows,
    how_read,
    nulls_in_words,
    saved,
    saved_in_words,
)
from layerwise.report.growth.lookup import GrowthScores
from layerwise.results.rows import Score
from report import grown

SUBJECT = "published - uniform"


def with_rows(*rows: Score) -> GrowthScores:
    """A study with further rows."""
    return GrowthScores.of((*grown.scores(12), *rows))


def saving(metric: str, value: float, half: float | None = None, terms: str = "flops") -> Score:
    return grown.row("growth", SUBJECT, terms, metric, value, half)


def test_the_published_schedule_answers_or_else_the_planned_one() -> None:
    assert headline_arm(with_rows()) == "published"
    rest = [score for score in grown.scores(12) if "published" not in score.subject]
    assert headline_arm(GrowthScores.of(rest)) == "importance"


def test_a_saving_has_two_bounds_or_the_one_that_is_known() -> None:
    assert saved(with_rows(saving("saving", 0.2, 0.1)), "published", "flops") == Bounds(0.2, 0.1, 0.30000000000000004)
    most = saved(with_rows(saving("saving_at_most", 0.2)), "published", "flops")
    assert most == Bounds(0.2, -math.inf, 0.2)
    assert saved(with_rows(saving("saving_at_least", 0.2)), "published", "flops") == Bounds(0.2, 0.2, 1.0)
    assert saved(with_rows(saving("saving", 0.2)), "published", "flops") is None
    assert saved(with_rows(), "published", "flops") is None


def test_what_is_censored_is_said_with_its_seeds() -> None:
    run = with_rows(saving("saving_at_most", 0.2), saving("never", 2), saving("saving_at_least", 0.4, terms="tokens"))
    assert saved_in_words(run, "published", "flops") == "20 % at most (not reached with 2 seeds)"
    assert saved_in_words(run, "published", "tokens") == "40 % at least (reached before the first look with a seed)"
    assert saved_in_words(run, "published", "seconds") == "–"


def test_it_says_what_it_was_read_off() -> None:
    assert "trainings of 2 lengths" in how_read(with_rows(saving("read_off", 2)), "published")
    assert "course of its loss" in how_read(with_rows(saving("read_off", 1)), "published")


def test_the_nulls_stand_beside() -> None:
    words = nulls_in_words(with_rows())
    assert "a table of token pairs at 4.90" in words
    assert "its warm-up not tuned" in words
    tried = [grown.row("rates", "uniform", f"{share:g}", "warmup_nll", 4.4 + share) for share in (0.1, 0.2, 0.4)]
    run = with_rows(*tried, grown.row("rates", "uniform", "0.1", "warmup_chosen", 1.0))
    assert "its warm-up 0.1 of the steps, of 0.1, 0.2 and 0.4 tried, the end of them" in nulls_in_words(run)


def test_epochs_are_shown_by_the_layers_that_have_most_and_least() -> None:
    learned = {0: 0.5, 1: 1.5, 2: 1.5, 3: 0.5}
    rows = [grown.row("epochs", "published", "all", str(layer), own) for layer, own in learned.items()]
    table = epoch_rows(with_rows(*rows, *(grown.row("epochs", "uniform", "all", str(n), 2.0) for n in range(4))))
    assert table.body == (
        ("uniform", "2.00", "all", "2.00", "all"),
        ("published", "1.50", "1, 2", "0.50", "0, 3"),
    )


def test_the_page_has_the_chapter_and_the_claims_where_the_rows_are() -> None:
    data = grown.run(12)
    assert "cost_to_loss" not in render(data).partition("Not in this run")[0]
    rows = [saving("saving", 0.2, 0.1, terms) for terms in ("flops", "tokens", "seconds")]
    page = render(ReportData(data.manifest, (), (*data.scores, *rows, saving("time_saved", 0.1, 0.02, "tokens"))))
    assert "What it costs to reach uniform&#x27;s loss" in page or "What it costs to reach uniform's loss" in page
    assert "Growth training costs 54 % less" in page


def test_a_run_without_the_rows_has_no_table() -> None:
    assert headline_rows(with_rows()).body == ()
    assert epoch_rows(with_rows()).body == ()
