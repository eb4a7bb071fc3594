"""When a draft ends: where one more token does not pay, from what was kept so far of tokens as sure."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.stack.speculation.draft_length import PROBE, DraftLength
from layerwise.stack.speculation.layer_passes import LayerPasses, expected_bound, expected_tokens


def drafted(length: DraftLength, confidence: float = 0.5) -> list[float]:
    """The confidences of the next draft, all alike."""
    confidences: list[float] = []
    while length.goes_on(confidences):
        confidences.append(confidence)
    return confidences


@given(st.integers(1, 8), st.floats(0.05, 0.9), st.floats(0, 1))
def test_all_kept_means_long_drafts_where_a_draft_is_cheap(longest: int, share: float, confidence: float) -> None:
    length = DraftLength(longest, share)
    for _ in range(200):
        length.observe([confidence] * longest, longest)
    assert drafted(length, confidence) == [confidence] * longest


@given(st.integers(1, 8), st.floats(1.0, 1.5))
def test_a_draft_as_dear_as_the_model_never_pays(longest: int, share: float) -> None:
    length = DraftLength(longest, share)
    assert drafted(length) == []


def test_none_kept_means_no_drafts_but_a_trial_now_and_then() -> None:
    length = DraftLength(4, 0.5)
    lengths = []
    for _ in range(100):
        draft = drafted(length)
        lengths.append(len(draft))
        length.observe(draft, 0)
    assert lengths[0] == 4
    assert set(lengths[10:]) == {0, 1}
    assert lengths[10:].count(1) <= 90 / PROBE + 1


def test_scores_that_are_not_finite_are_the_least_sure() -> None:
    length = DraftLength(4, 0.5)
    for _ in range(5):
        length.observe([float("nan")] * 2, 0)
        length.observe([0.9] * 2, 2)
    assert length.goes_on([0.9])
    assert not length.goes_on([float("nan")])
    assert not length.goes_on([0.05])


def test_a_fixed_length_stays() -> None:
    length = DraftLength(3, 0.5, adapts=False)
    for _ in range(20):
        length.observe(drafted(length), 0)
    assert len(drafted(length)) == 3


def test_a_draft_goes_on_behind_sure_tokens_and_ends_behind_others() -> None:
    """Tokens of confidence .9 are kept nine times of ten, those of .1 once in ten, and they come at random."""
    chance, length = random.Random(0), DraftLength(8, 0.2)
    behind: dict[float, list[bool]] = {0.9: [], 0.1: []}
    for number in range(400):
        confidences: list[float] = []
        while length.goes_on(confidences):
            if confidences and number > 100:
                behind[confidences[-1]].append(True)
            confidences.append(chance.choice([0.9, 0.1]))
        if confidences and number > 100 and len(confidences) < 8:
            behind[confidences[-1]].append(False)
        kept = [chance.random() < confidence for confidence in confidences]
        length.observe(confidences, (*kept, False).index(False))
    shares = {confidence: sum(went) / len(went) for confidence, went in behind.items()}
    assert shares[0.9] > 0.9
    assert shares[0.1] < 0.1


def speed(longest: int, share: float, adapts: bool, chances: tuple[float, ...], tells: bool) -> float:
    """N / (R + c P) over 3,000 rounds in which a token is kept with its chance, which its confidence `tells` or not."""
    chance, length = random.Random(1), DraftLength(longest, share, adapts)
    tokens = cost = 0.0
    for _ in range(3000):
        confidences: list[float] = []
        real: list[float] = []
        while length.goes_on(confidences):
            real.append(chance.choice(chances))
            confidences.append(real[-1] if tells else 0.5)
        kept = (*(chance.random() < each for each in real), False).index(False)
        length.observe(confidences, kept)
        tokens, cost = tokens + kept + 1, cost + 1 + share * len(real)
    return tokens / cost


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("acceptance", [0.3, 0.6, 0.9])
def test_it_is_nearly_as_fast_as_the_best_fixed_length(share: float, acceptance: float) -> None:
    best = max(expected_bound(acceptance, length, share) for length in range(9))
    assert speed(8, share, True, (acceptance,), False) > 0.95 * best


def test_confidence_that_tells_is_worth_more_than_any_fixed_length() -> None:
    fixed = max(speed(length, 0.2, False, (0.95, 0.2), True) for length in range(1, 9))
    assert speed(8, 0.2, True, (0.95, 0.2), True) > 1.05 * fixed
    assert speed(8, 0.2, True, (0.95, 0.2), False) < 1.05 * fixed  # confidence that tells nothing gives nothing


@given(st.integers(0, 6), st.floats(0.1, 1.0), st.integers(1, 50))
def test_the_bound_of_full_rounds_is_the_expected_one(length: int, share: float, rounds: int) -> None:
    depth = 10
    steps = round(share * depth)
    passes = LayerPasses(depth, steps, rounds * (length + 1), rounds, rounds * length, rounds * length)
    assert passes.bound == pytest.approx(expected_bound(1.0, length, steps / depth))
    assert expected_tokens(0.0, length) == 1.0
