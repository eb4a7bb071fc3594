"""The text needed to show an effect: four times as much for half the effect."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.page import ReportData
from layerwise.page.derived.power import describe_text, describe_tokens_needed
from layerwise.results.estimate import estimate_tokens_needed
from layerwise.results.rows import Score

nats = st.floats(1e-3, 10.0)


@given(nats, nats, st.integers(1_000, 10**7))
def test_half_the_effect_needs_four_times_the_text(mde: float, wanted: float, tokens: int) -> None:
    row = Score("effect", "delta_nll", 0.0, mde=mde, tokens=tokens)
    needed, more = (estimate_tokens_needed(row, each) for each in (wanted, wanted / 2))
    assert (needed is None) == (round(tokens * (mde / wanted) ** 2, -2) <= tokens)
    if needed is not None:
        assert more == pytest.approx(4 * needed, abs=300)


def test_resolved_effects_need_no_more_text() -> None:
    assert estimate_tokens_needed(Score("effect", "delta_nll", 0.0, mde=0.01, tokens=500), 0.01) is None
    assert describe_tokens_needed([Score("effect", "delta_nll", 0.5, mde=0.1, tokens=500)]) == ""
    assert describe_tokens_needed([Score("effect", "delta_nll", 0.0, tokens=500)], 0.01) == ""


def data(experiment: dict[str, object], *scores: Score) -> ReportData:
    counts = {"documents": 12, "tokens": 1_000, "window": 256}
    return ReportData({**counts, "experiment": experiment}, (), scores)


EFFECTS = [
    Score("effect", "delta_nll", 0.1, mde=mde, tokens=1_000, plan=str(n)) for n, mde in enumerate((0.01, 0.02, 9))
]


def test_the_text_is_described_with_the_options_that_reproduce_it() -> None:
    first, again, _ = describe_text(data({"minutes": 3.0, "tokens": 1_010, "max_length": 256}, EFFECTS[0]))
    assert first == "Text: 12 documents, 1,000 scored tokens in windows of at most 256 tokens."
    assert again == "The text fits a time budget of 3 minutes; to reproduce it, pass --tokens 1010 --max-length 256."
    assert list(describe_text(data({"tokens": 1_010}, EFFECTS[0]))) == [first]
    assert list(describe_text(data({"tokens": 1_010}))) == [], "its rows are not of the text"


def test_a_finer_resolution_is_given_in_tokens_and_minutes() -> None:
    chosen: dict[str, object] = {"minutes": 5.0, "tokens": 1_010}

    def resolution(*more: Score) -> str:
        *_, line = describe_text(data(chosen, *EFFECTS, *more))
        return line

    assert resolution() == (
        "Median minimum detectable effect: 0.0200 nats. To detect an effect of 0.01 nats/token, use about 4,000 tokens"
        " (--minutes 20)."
    )
    assert resolution(Score("verdict", "margin", 0.1)) == "Median minimum detectable effect: 0.0200 nats."
    assert resolution(Score("verdict", "margin", 1e-4)) == (
        "Median minimum detectable effect: 0.0200 nats. To halve it, use four times as much text."
    )
    # For a diagnosis it is the effect of skipping each whole layer.
    skips = [Score("ablation", "skip", 0.1, mde=mde, tokens=1_000, layer=layer) for layer, mde in enumerate((3, 4, 5))]
    of_skips = resolution(*skips, replace(skips[0], part="mlp", mde=0.01))
    assert of_skips.startswith("Median minimum detectable effect: 4 nats.")
    assert len(list(describe_text(data({}, *EFFECTS)))) == 1
    assert len(list(describe_text(data({**chosen, "tokens": "all"}, *EFFECTS)))) == 2, "all there is was read"
