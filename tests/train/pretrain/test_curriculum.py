"""The batches of both phases: exact lengths and numbers, every segment once a round, the same however divided."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import TrainError
from layerwise.train.pretrain.curriculum import Batches, CurriculumPhase, rate_at

SHORT, LONG = CurriculumPhase(128, 8, 0, 9, segments=20), CurriculumPhase(512, 2, 9, 10, segments=5)


def test_length_and_number_change_at_the_exact_step() -> None:
    found = [
        (len(batch), {draw.length for draw in batch}, {draw.step for draw in batch})
        for batch in Batches((SHORT, LONG), seed=0)
    ]
    assert found == [*((8, {128}, {step}) for step in range(9)), (2, {512}, {9})]
    assert len(Batches((SHORT, LONG), seed=0)) == 10
    assert list(Batches((SHORT,), seed=0)) != list(Batches((SHORT,), seed=1))


@given(st.integers(1, 30), st.integers(0, 5))
def test_every_segment_is_read_once_a_round(segments: int, seed: int) -> None:
    batch = min(4, segments)
    phase = CurriculumPhase(128, batch, 0, 3 * segments, segments)
    read = [draw.segment for step in Batches((phase,), seed) for draw in step]
    rounds = [read[start : start + segments] for start in range(0, len(read) - segments + 1, segments)]
    assert len(rounds) == 3 * batch
    assert all(sorted(each) == list(range(segments)) for each in rounds)
    assert segments < 8 or rounds[0] != rounds[1]


@pytest.mark.parametrize(("passes", "processes"), [(1, 2), (2, 1), (2, 2), (4, 2)])
def test_division_among_passes_and_processes_changes_nothing(passes: int, processes: int) -> None:
    phase = CurriculumPhase(128, 8, 0, 5, segments=20)
    whole = [Counter(batch) for batch in Batches((phase,), seed=1)]
    shares = [
        list(Batches((phase,), seed=1, passes=passes, processes=processes, process=process))
        for process in range(processes)
    ]
    for step, expected in enumerate(whole):
        pieces = [piece for share in shares for piece in share[step * passes : (step + 1) * passes]]
        assert {len(piece) for piece in pieces} == {8 // (passes * processes)}
        assert Counter(draw for piece in pieces for draw in piece) == expected


def test_a_batch_that_is_too_large_or_does_not_divide_is_refused_with_figures() -> None:
    with pytest.raises(
        TrainError, match=r"gives 5 segment\(s\) of up to 128 tokens, .* one batch of 8: .* --batch-size of"
    ):
        CurriculumPhase(128, 8, 0, 9, segments=5)
    with pytest.raises(TrainError, match="a batch of 2 segments of length 512"):
        Batches((SHORT, LONG), seed=0, passes=4)


def test_the_rate_rises_in_a_line_and_falls_in_a_cosine() -> None:
    rates = [rate_at(step, steps=1_000, warmup=16, floor=0.1) for step in range(1_000)]
    assert rates[:16] == pytest.approx([(step + 1) / 16 for step in range(16)])
    assert rates[16] == max(rates) == 1.0
    assert rates[508] == pytest.approx(0.55)  # half-way down
    assert rates[-1] == pytest.approx(0.1, abs=1e-5)
    assert all(later < earlier for earlier, later in pairwise(rates[16:]))
    assert rate_at(0, steps=10, warmup=0, floor=0.1) == 1.0, "without a warm-up it begins at its highest"
