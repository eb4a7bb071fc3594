"""Values of a swarm: how they are written, what they decide, and the sentence where one cannot be."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import SwarmError
from layerwise.swarm.answer import COMPLETE, UNKNOWN, Decoding, Expected
from layerwise.swarm.serve.settings import ServeSettings
from layerwise.swarm.settings import Quorum, SwarmSettings

REFUSED: tuple[tuple[Any, dict[str, Any], str], ...] = (
    *(
        (Decoding, {"max_new_tokens": 4, name: value}, rf"^{name} is .*; write ")
        for name, value in (
            ("max_new_tokens", 0),
            ("min_new_tokens", 5),
            ("min_new_tokens", -1),
            ("temperature", -0.1),
            ("temperature", math.nan),
            ("top_p", 0.0),
            ("top_p", 1.1),
            ("top_p", math.nan),
            ("top_k", -1),
            ("repetition_penalty", 0.0),
            ("repetition_penalty", math.inf),
            ("stop", ("",)),
            ("stop", tuple("abcdefghijklmnopq")),
            ("stop", ("a" * 2_000,)),
            ("seed", 2**63),
        )
    ),
    (Quorum, {}, "one of the two"),
    (Quorum, {"layers": 1, "nats": 1.0}, "one of the two"),
    (Quorum, {"nats": math.inf}, "a number of nats from 0, not inf"),
    *(
        (SwarmSettings, {name: value}, f"{name} is {value}; give a number of seconds above 0")
        for name, value in (("hop_floor", 0.0), ("first_deadline", -1.0), ("first_deadline", math.inf))
    ),
    (SwarmSettings, {"spot_share": 2.0}, "spot_share is 2.0; give a share from 0 to 1"),
    (SwarmSettings, {"history_bytes": 0}, "history_bytes is 0; give a number from 1"),
    *(
        (ServeSettings, {name: value}, name)
        for name, value in (("port", 70_000), ("temperature", 3.0), ("most_running", 0), ("body_seconds", -1.0))
    ),
)


@pytest.mark.parametrize(("kind", "values", "words"), REFUSED)
def test_a_value_that_cannot_be_is_refused_in_a_sentence(kind: Any, values: dict[str, Any], words: str) -> None:
    with pytest.raises(SwarmError, match=words) as caught:
        kind(**values)
    assert len(str(caught.value)) < 200


def test_the_defaults_take_the_likeliest_token() -> None:
    assert Decoding(4) == Decoding(4, 0, 0.0, 1.0, 0, 1.0, (), None)
    assert Decoding(1, 1, 2.0, 0.5, 40, 1.2, ("end",), -1).stop == ("end",)


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


def test_a_quorum_can_be_met() -> None:
    with pytest.raises(
        SwarmError, match="the model has 6 layers, so that it never meets a quorum of 8 layers: write 6"
    ):
        SwarmSettings(quorum=Quorum(layers=8)).quorum_of(6)
    assert SwarmSettings(quorum=Quorum(layers=6)).quorum_of(6) == Quorum(layers=6)
    assert SwarmSettings(quorum=Quorum(nats=0.5)).quorum_of(1) == Quorum(nats=0.5)
    assert SwarmSettings().quorum_of(5) == Quorum(layers=3)


@given(st.integers(1, 12), st.sets(st.integers(0, 11)))
def test_a_quorum_of_layers_counts_those_that_are_live(least: int, missing: set[int]) -> None:
    live = set(range(12)) - missing
    assert (Quorum(layers=least).verdict(live, missing, UNKNOWN) is None) == (len(live) >= least)


def test_the_sentences() -> None:
    cost = Expected(0.4, 0.3, 0.6, "measured")
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
