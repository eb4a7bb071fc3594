"""Quorums: how they are written, when they are met, and the sentence when they are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import SwarmError
from layerwise.swarm.answer import COMPLETE, UNKNOWN, Expected
from layerwise.swarm.settings import Quorum


@pytest.mark.parametrize(
    ("text", "quorum"),
    [
        ("8", Quorum(layers=8)),
        (" 8 layers ", Quorum(layers=8)),
        ("1layer", Quorum(layers=1)),
        ("0.5 nats", Quorum(nats=0.5)),
        ("2nats", Quorum(nats=2.0)),
        (".25 nats", Quorum(nats=0.25)),
        ("0 nats", Quorum(nats=0.0)),
    ],
)
def test_how_a_quorum_is_written(text: str, quorum: Quorum) -> None:
    assert Quorum.parse(text) == quorum
    assert Quorum.parse(str(quorum)) == quorum


@pytest.mark.parametrize("text", ["", "0", "0.5", "-1", "half", "0.5 nat per token", "1e3 nats", "8 of 12", "٣ nats"])
def test_what_is_no_quorum_is_refused(text: str) -> None:
    with pytest.raises(SwarmError, match="a quorum is a"):
        Quorum.parse(text)


def test_a_quorum_is_of_one_kind_and_can_be_met() -> None:
    for both in ({}, {"layers": 1, "nats": 1.0}):
        with pytest.raises(SwarmError, match="one of the two"):
            Quorum(**both)
    with pytest.raises(SwarmError, match="a number of nats from 0, not inf"):
        Quorum(nats=float("inf"))
    with pytest.raises(
        SwarmError, match="the model has 6 layers, so that it never meets a quorum of 8 layers: write 6"
    ):
        Quorum(layers=8).check(6)
    Quorum(layers=6).check(6)
    Quorum(nats=0.5).check(1)


@given(st.integers(1, 12), st.sets(st.integers(0, 11)))
def test_a_quorum_of_layers_counts_those_that_are_live(least: int, missing: set[int]) -> None:
    live = set(range(12)) - missing
    assert (Quorum(layers=least).verdict(live, missing, UNKNOWN) is None) == (len(live) >= least)


def test_the_sentences() -> None:
    cost = Expected(0.4, 0.3, 0.6, "fitted")
    assert Quorum(layers=8).verdict(range(5), range(5, 12), cost) == (
        "5 of 12 layers are live and the quorum is 8 layers; missing: 5-11"
    )
    assert Quorum(nats=0.6).verdict(range(9), [9, 10, 11], cost) is None
    assert Quorum(nats=0.5).verdict(range(9), [9, 10, 11], cost) == (
        "the missing layers are expected to cost 0.4 nats per token, at most 0.6, and the quorum is 0.5 nats; "
        "missing: 9-11"
    )
    assert Quorum(nats=0.5).verdict([0, 2], [1], UNKNOWN) == (
        "nobody knows what the missing layers cost and the quorum is 0.5 nats; missing: 1"
    )
    assert Quorum(nats=9.0).verdict([], [0], cost) == "no layer is live and the quorum is 9 nats"
    assert Quorum(nats=0.0).verdict(range(12), [], COMPLETE) is None
