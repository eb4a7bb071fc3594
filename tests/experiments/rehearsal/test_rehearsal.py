"""Rehearsals: their options, their draws, their rows, and one from end to end."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from layerwise.errors import DataError, OptionError, SwarmError
from layerwise.experiments.rehearsal.config import Rehearsal, levels
from layerwise.experiments.rehearsal.rows import rows
from layerwise.experiments.rehearsal.simulation import read_times
from layerwise.experiments.rehearsal.trial import DeadNodes
from layerwise.experiments.runner import perform
from layerwise.results import Run


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


def test_differences_are_paired_by_draw() -> None:
    """Draws differ much and arms little: the difference of the arms is resolved though neither accuracy is."""
    whole = [{"accuracy": 0.9}] * 3
    outcomes = {
        "baseline": {(1, 0): whole, (1, 4): [{"accuracy": value} for value in (0.2, 0.5, 0.8)]},
        "layershuffle": {(1, 0): whole, (1, 4): [{"accuracy": value} for value in (0.31, 0.6, 0.89)]},
    }
    by_name = {(row.subject, row.task, row.metric): row for row in rows(outcomes, nodes=8)}
    task = "4 of 8 dead, 1 replica"
    above = by_name["layershuffle", task, "accuracy_above@baseline"]
    assert above.value == pytest.approx(0.1)
    assert above.low is not None
    assert above.low > 0
    lost = by_name["baseline", task, "accuracy_lost"]
    assert lost.value == pytest.approx(0.4)
    assert lost.low is not None
    assert lost.low < 0
    assert by_name["baseline", "0 of 8 dead, 1 replica", "accuracy"].low is None
    assert ("baseline", task, "accuracy_above@baseline") not in by_name


@pytest.mark.slow
def test_a_decoder_from_end_to_end(tmp_path: Path) -> None:
    config = Rehearsal(
        model="demo", run=tmp_path / "run", nodes=4, kill="0-100%", draws=2, requests=4, streams=2, new_tokens=3,
        hop_seconds=0.001, layer_seconds=0.001,
    )  # fmt: skip
    perform(config)
    with Run.open(tmp_path / "run") as run:
        by_name = {(row.task, row.metric): row for row in run.store.scores("rehearsal")}
    for replicas in ("1 replica", "2 replicas"):
        assert by_name[f"0 of 4 dead, {replicas}", "agreement"].value == 1
        assert by_name[f"0 of 4 dead, {replicas}", "nll_added"].value == 0
    assert by_name["1 of 4 dead, 2 replicas", "agreement"].value == 1
    assert by_name["1 of 4 dead, 2 replicas", "missing"].value == 0
    assert by_name["1 of 4 dead, 1 replica", "missing"].value == 3
    assert by_name["1 of 4 dead, 1 replica", "nll_added"].value > 0
    assert by_name["4 of 4 dead, 2 replicas", "refused"].value > 0.4
    page = (tmp_path / "run" / "report.html").read_text()
    assert "What is left when nodes die" in page


@pytest.mark.nightly
def test_on_ray_processes_are_killed_and_every_request_is_answered(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    config = Rehearsal(
        model="demo", run=tmp_path / "run", nodes=2, kill="1", draws=1, requests=4, streams=2, new_tokens=3,
        hop_seconds=0.001, layer_seconds=0.001, ray="local",
    )  # fmt: skip
    perform(config)
    with Run.open(tmp_path / "run") as run:
        by_name = {(row.task, row.metric): row for row in run.store.scores("rehearsal")}
    assert by_name["1 of 2 dead, 2 replicas", "refused"].value == 0
    assert by_name["1 of 2 dead, 2 replicas", "agreement"].value == 1
    assert by_name["1 of 2 dead, 2 replicas", "missing"].value == 0
    assert by_name["1 of 2 dead, 1 replica", "missing"].value == 6
    assert by_name["0 of 2 dead, 1 replica", "agreement"].value == 1


@pytest.mark.parametrize("content", ["[" * 99_999, "7", '{"layer": "fast"}', '{"layer": ' + "9" * 5_000 + "}"])
def test_what_are_no_times_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "times.json").write_text(content)
    with pytest.raises(DataError, match=r"times\.json"):
        read_times(tmp_path / "times.json")
    with pytest.raises(DataError, match="is a folder, not a file"):
        read_times(tmp_path)
