"""Rehearsals: their options, their draws, their rows, and one from end to end."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from transformers import LlamaForCausalLM

from layerwise.errors import OptionError, SwarmError
from layerwise.experiments.rehearsal.trial import LEAST_TIMED, DeadNodes, measured_times, rows
from layerwise.experiments.robustness.config import Rehearsal, levels
from layerwise.experiments.runner import perform
from layerwise.results import Run
from layerwise.results.selection import Rows
from layerwise.stack import load


@pytest.mark.parametrize("kill", ["9", "all of them", "60-40%", "0-101%", "-1", ""])
def test_a_number_of_dead_nodes_that_cannot_be_is_refused(kill: str) -> None:
    with pytest.raises(OptionError, match="write half, 4, or 0-100%"):
        levels(kill, 8)


def test_options_that_cannot_be_are_refused_before_anything_is_opened() -> None:
    with pytest.raises(OptionError, match="--replicas 3 needs as many nodes"):
        Rehearsal(model="demo", nodes=2, replicas=3)
    with pytest.raises(SwarmError, match="a quorum is a number"):
        Rehearsal(model="demo", quorum="most")


def test_more_dead_nodes_are_those_of_fewer_and_others() -> None:
    deaths = [DeadNodes.drawn(8, 2, count, "0/3").dead for count in range(9)]
    assert all(fewer == more[: len(fewer)] for fewer, more in pairwise(deaths))
    assert len({node for node, _ in deaths[8]}) == 8
    assert DeadNodes.drawn(8, 1, 4, "0/3").dead == deaths[4]


def test_times_that_are_measured_have_intervals_and_the_load(llama: LlamaForCausalLM) -> None:
    times = measured_times(load(llama), {"input_ids": torch.tensor([[5, 6, 7]])}, seconds=0.0)
    found = re.fullmatch(
        rf"medians of {LEAST_TIMED}, \[(\S+), (\S+)\] and \[(\S+), (\S+)\] ms, under a load of .+ processors",
        times.measured,
    )
    assert found is not None, times.measured
    hop_low, hop_high, layer_low, layer_high = (float(text) / 1000 for text in found.groups())
    near = 1.01  # three digits are printed
    assert hop_low / near <= times.hop <= hop_high * near
    assert layer_low / near <= times.layer <= layer_high * near


def test_differences_are_paired_by_draw() -> None:
    """Draws differ much and arms little: the difference of the arms is resolved though neither accuracy is."""
    whole = [{"accuracy": 0.9}] * 3
    outcomes = {
        "baseline": {(1, 0): whole, (1, 4): [{"accuracy": value} for value in (0.2, 0.5, 0.8)]},
        "layershuffle": {(1, 0): whole, (1, 4): [{"accuracy": value} for value in (0.31, 0.6, 0.89)]},
    }
    made = Rows(rows(outcomes, nodes=8))
    assert made.value(metric="nodes") == 8
    above = made.one(arm="layershuffle", condition="1 replica", amount=4, metric="accuracy_above", against="baseline")
    assert above is not None
    assert above.value == pytest.approx(0.1)
    assert above.low is not None
    assert above.low > 0
    lost = made.one(arm="baseline", amount=4, metric="accuracy_lost")
    assert lost is not None
    assert lost.value == pytest.approx(0.4)
    assert lost.low is not None
    assert lost.low < 0
    assert lost.high == 1, "no more than all can be lost"
    (whole,) = made.where(arm="baseline", amount=0, metric="accuracy")
    assert whole.low is None
    assert not made.where(arm="baseline", metric="accuracy_above")


@pytest.mark.slow
def test_a_decoder_from_end_to_end(tmp_path: Path) -> None:
    config = Rehearsal(
        model="demo",
        run=tmp_path / "run",
        nodes=4,
        kill="0-100%",
        draws=2,
        requests=4,
        streams=2,
        new_tokens=3,
        hop_seconds=0.001,
        layer_seconds=0.001,
    )
    perform(config)
    with Run.open(tmp_path / "run") as run:
        stored = Rows(run.store.scores("rehearsal"))
    assert [stored.where(amount=0, metric=name).along("condition").keys() for name in ("agreement", "nll_added")] == [
        {"1 replica", "2 replicas"}
    ] * 2
    assert {row.value for row in stored.where(amount=0, metric="agreement")} == {1}
    assert {row.value for row in stored.where(amount=0, metric="nll_added")} == {0}
    safe, bare = (stored.where(amount=1, condition=condition) for condition in ("2 replicas", "1 replica"))
    assert (safe.value(metric="agreement"), safe.value(metric="missing"), bare.value(metric="missing")) == (1, 0, 3)
    assert (bare.value(metric="nll_added") or 0) > 0
    assert (stored.value(amount=4, condition="2 replicas", metric="refused") or 0) > 0.4
    page = (tmp_path / "run" / "report.html").read_text()
    assert "What is left when nodes die" in page


@pytest.mark.nightly
def test_on_ray_processes_are_killed_and_every_request_is_answered(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    config = Rehearsal(
        model="demo",
        run=tmp_path / "run",
        nodes=2,
        kill="1",
        draws=1,
        requests=4,
        streams=2,
        new_tokens=3,
        hop_seconds=0.001,
        layer_seconds=0.001,
        ray="local",
    )
    perform(config)
    with Run.open(tmp_path / "run") as run:
        stored = Rows(run.store.scores("rehearsal"))
    safe = stored.where(amount=1, condition="2 replicas")
    assert [safe.value(metric=name) for name in ("refused", "agreement", "missing")] == [0, 1, 0]
    assert stored.value(amount=1, condition="1 replica", metric="missing") == 6
    assert stored.value(amount=0, condition="1 replica", metric="agreement") == 1
