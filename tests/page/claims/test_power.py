"""The printed detectable size and required text, in closed form."""

from dataclasses import replace

import pytest
from scipy.stats import norm

from layerwise.page.claims.claim import EQUIVALENCE, beside_bound, more, needed, seen, widest
from layerwise.page.claims.contrasts import Fact, Several
from layerwise.results.multiplicity import stretch
from layerwise.results.rows import Score
from layerwise.studies.train_elc.findings import POWER as DETECTABLE
from page.claims.bars import planted
from page.claims.truths import claim_of

ROW = Score("contrast", "excess", 0.0, claim="core", mde=0.1, tokens=1_000)
SURE, POWER = norm.ppf(0.975), norm.ppf(0.8)


def test_an_equivalence_takes_both_ends_inside_the_margin() -> None:
    assert pytest.approx((SURE + norm.ppf(0.9)) / (SURE + POWER), abs=0.005) == EQUIVALENCE


@pytest.mark.parametrize("count", [1, 2, 12])
def test_several_contrasts_that_are_found_together_are_each_found_more_often(count: int) -> None:
    assert stretch(count) == pytest.approx((SURE + norm.ppf(0.8 ** (1 / count))) / (SURE + POWER))


@pytest.mark.parametrize(("count", "together"), [(2, None), (12, None), (2, 1), (12, 1), (12, 2)])
def test_the_printed_contrast_is_that_of_as_many_as_are_found_together(count: int, together: int | None) -> None:
    rows = {f"step_{number}": Fact(replace(ROW, mde=0.1 + 0.01 * number)) for number in range(count)}
    mde = (0.1 + 0.01 * (count - 1)) * (SURE + norm.ppf(0.8 ** (1 / (together or count)))) / (SURE + POWER)
    assert f"{Several(rows, together=together):seen nats}" == f"Of 100 such runs 80 would see {mde:.3f} nats."


@pytest.mark.parametrize(("mde", "margin"), [(0.1, 0.05), (0.1, 0.0999), (0.1, 0.1001), (0.05, 0.1)])
def test_no_less_than_what_counts_is_ever_said_to_be_seen(mde: float, margin: float) -> None:
    assert seen(replace(ROW, mde=mde), margin, "nats") == f"Of 100 such runs 80 would see {max(mde, margin):.3f} nats."


@pytest.mark.parametrize(("mde", "margin"), [(0.1, 0.05), (0.3, 0.05), (0.2, 0.1)])
def test_an_interval_shrinks_with_the_root_of_the_text(mde: float, margin: float) -> None:
    times = ((SURE + norm.ppf(0.9)) / (SURE + POWER) * mde / margin) ** 2
    said = needed(replace(ROW, mde=mde), margin)
    tokens = float(said.removeprefix("; about ").removesuffix(" tokens would decide").replace(",", ""))
    assert tokens == pytest.approx(1_000 * times, rel=0.05)  # printed with two digits
    asked = more(replace(ROW, mde=mde), margin, "seeds")
    assert float(asked.split()[1]) == pytest.approx(times, abs=1)


def test_where_text_would_not_help_it_is_not_asked_for() -> None:
    assert needed(ROW, 0.0) == needed(replace(ROW, tokens=None), 0.05) == needed(replace(ROW, mde=None), 0.05) == ""
    assert needed(replace(ROW, mde=0.05 * 1_000**0.5 / EQUIVALENCE * 1.001), 0.05) == (
        "; no text of 1,000 times this length would decide"
    )
    assert needed(replace(ROW, mde=0.01), 0.05) == "; about 1,000 tokens would decide"
    assert more(replace(ROW, mde=0.05 / EQUIVALENCE * 0.999), 0.05) == ""
    assert (
        more(replace(ROW, mde=0.05 / EQUIVALENCE * 1.001), 0.05) == " About 2 times the seeds and images would decide."
    )


def test_amounts_that_a_claim_prints_are_those_of_the_normal_distribution() -> None:
    assert pytest.approx((SURE + POWER) / SURE, abs=0.001) == DETECTABLE
    rows = planted("agreement", {"apart": (-0.2, 0.6), "together": (0.4, 0.8), "layers": 12.0})
    layers = round(12 * ((SURE + norm.ppf(0.9)) / (SURE + POWER) * 0.4 / 0.3) ** 2)
    wide = [replace(row, mde=0.4) for row in rows]
    assert f"about {layers} layers would decide" in claim_of("agreement", wide, 12).answer


def test_a_bound_is_told_from_either_side_by_one_detectable_effect() -> None:
    row = replace(ROW, mde=0.04)
    assert beside_bound(row, 0.25, "points") == "Of 100 such runs 80 would distinguish 21.0 or 29.0 from 25 points."
    assert widest([row, ROW, replace(ROW, mde=None)]) == ROW
