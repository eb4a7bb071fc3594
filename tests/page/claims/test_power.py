"""The printed detectable size and required text, in closed form."""

from dataclasses import replace

import pytest
from scipy.stats import norm

from layerwise.page.finding import EQUIVALENCE, describe_text_needed
from layerwise.results.estimate import Estimate
from layerwise.studies.train_elc.findings import POWER as DETECTABLE

ROW = Estimate(0.0, mde=0.1, tokens=1_000)
SURE, POWER = norm.ppf(0.975), norm.ppf(0.8)


def test_equivalence_needs_both_ends_inside_the_margin() -> None:
    assert pytest.approx((SURE + norm.ppf(0.9)) / (SURE + POWER), abs=0.005) == EQUIVALENCE


@pytest.mark.parametrize(("mde", "margin"), [(0.1, 0.05), (0.3, 0.05), (0.2, 0.1)])
def test_an_interval_shrinks_with_the_root_of_the_text(mde: float, margin: float) -> None:
    times = ((SURE + norm.ppf(0.9)) / (SURE + POWER) * mde / margin) ** 2
    said = describe_text_needed(replace(ROW, mde=mde), margin)
    tokens = float(said.removeprefix("; about ").removesuffix(" tokens should settle it").replace(",", ""))
    assert tokens == pytest.approx(1_000 * times, rel=0.05)  # printed with two digits


def test_no_text_is_required_if_it_would_not_help() -> None:
    assert (
        describe_text_needed(ROW, 0.0)
        == describe_text_needed(replace(ROW, tokens=None), 0.05)
        == describe_text_needed(replace(ROW, mde=None), 0.05)
        == ""
    )
    assert describe_text_needed(replace(ROW, mde=0.05 * 1_000**0.5 / EQUIVALENCE * 1.001), 0.05) == (
        "; even 1,000 times as much text would not settle it"
    )
    assert describe_text_needed(replace(ROW, mde=0.01), 0.05) == "; about 1,000 tokens should settle it"


def test_the_detectable_effect_is_that_of_the_normal_distribution() -> None:
    assert pytest.approx((SURE + POWER) / SURE, abs=0.001) == DETECTABLE
