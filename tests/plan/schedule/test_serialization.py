"""Schedules as files and in words."""

import json
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawn_schedules import schedules
from layerwise.errors import PlanError
from layerwise.plan.schedule import PRESETS, GrowthSchedule, Phase, chart, explain, preset
from layerwise.plan.schedule.cost import layer_shares
from layerwise.plan.schedule.serialization import LEGEND, read_layers, write_layers
from layerwise.studies.train_growth.schedule_file import read_schedule, write_schedule
from tier import by_tier


def written(*phases: dict[str, Any] | Any) -> dict[str, Any]:
    return {"name": "by hand", "depth": 4, "phases": list(phases)}


def phase(name: str = "a", **fields: Any) -> dict[str, Any]:
    return {"name": name, "share": 1, "trains": "all", **fields}


@given(schedule=schedules())
def test_written_values_read_back_equal(schedule: GrowthSchedule) -> None:
    assert GrowthSchedule.from_json(schedule.to_json()) == schedule
    assert GrowthSchedule.from_json(json.loads(json.dumps(schedule.to_json()))) == schedule


@given(layers=st.sets(st.integers(0, 60)))
def test_layers_and_their_text(layers: set[int]) -> None:
    ascending = tuple(sorted(layers))
    assert read_layers(write_layers(ascending), "trains", depth=61) == ascending


def test_layers_in_words_are_read_or_refused_at_the_character() -> None:
    assert read_layers("all", "trains", depth=3) == (0, 1, 2)
    assert read_layers("none", "trains", depth=3) == ()
    assert read_layers(2, "trains", depth=3) == (2,)

    with pytest.raises(PlanError) as refused:
        GrowthSchedule.from_json(written(phase(trains="0-1 x")))
    assert refused.value.position == 4


WRONG: list[tuple[Any, str]] = [
    (written(phase(share=0.5), phase("b", share=0.4)), "the shares of the phases must sum to 1"),
    (written(phase(trians="0-3")), r"phase a has the unknown key 'trians' .* did you mean trains\?"),
    (written({**phase(), "from": 0.5}), r"phase a has the unknown key 'from' .*; write share, its part of the budget"),
    (written({"name": "a", "share": 1}), "phase a must have the keys name, share, trains, but lacks trains"),
    (written(3), "phase 1 must be a mapping of keys to values"),
    (written(), "phases must be a non-empty list of phases"),
    ({"name": "x"}, "a schedule must have the keys name, depth, phases, but lacks depth and"),
    ({**written(phase()), "depth": "4"}, "depth must be an integer number of layers from 1 to 10000"),
    (None, "a schedule must be a mapping of keys to values"),
    (written(phase(trains="0-4")), "phase a: trains lists layer 4, but the schedule is for 4 layers"),
    (written(phase(trains="3-0")), "phase a: trains must be ascending layers without duplicates, as in 0-3"),
    (written(phase(trains="0*2")), "phase a: trains must be entire layers without repeats or groups, as in"),
    (written(phase(trains="(0|1)")), "phase a: trains must be entire layers without repeats or groups, as in"),
    (written(phase(trains="0,1")), "phase a: trains is invalid: layers must be separated by spaces, as in 0 1 2"),
    (written(phase(trains=[0, 1])), "phase a: trains must be all, none, or layers such as 0-3 8"),
    (written(phase(scale=0.9)), r"phase a: scale must map layers to a factor, as in \{3 5: 0\.9\}"),
    (written(phase(scale={"0-1": 0.9, "1": 0.8})), "phase a: scale must be ascending without duplicates"),
    (written(phase(copies="2-3")), r"phase a: copies must map layers to their sources, as in \{4-7: 0-3\}"),
    (written(phase(copies={"2-3": "0"})), "phase a: copies must have as many layers as sources"),
    (written(phase(drop=0.5)), r"phase a: drop must be two probabilities in \[0, 1\), for the first and"),
]


@pytest.mark.parametrize(("content", "message"), WRONG, ids=[message for _, message in WRONG])
def test_wrong_schedules_are_refused(content: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        GrowthSchedule.from_json(content)


@settings(max_examples=by_tier(fast=5, nightly=60))
@given(schedule=schedules())
def test_a_file_gives_the_schedule_back(schedule: GrowthSchedule) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "schedule.yaml"
        write_schedule(schedule, path)
        assert read_schedule(path) == schedule


def test_a_file_written_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "hand.yaml"
    path.write_text(
        "# a comment\nname: by hand\ndepth: 12\nphases:\n  - name: top\n    share: 0.25\n    trains: 8-11\n    "
        "embedding: no\n    scale: {3 5: 0.9, 7: 0.5}\n  - name: rest\n    share: 0.75\n    trains: all\n    copies: "
        "{8-11: 0-3}\n    drop: [0, 0.5]\n    sample: 2\n    every: 10\n    head: no\n"
    )
    top, rest = read_schedule(path).phases
    assert (top.trains, top.embedding, top.scale) == ((8, 9, 10, 11), False, ((3, 0.9), (5, 0.9), (7, 0.5)))
    assert rest.copies == ((8, 0), (9, 1), (10, 2), (11, 3))
    assert (rest.drop, rest.sample, rest.every, rest.head, top.head) == ((0, 0.5), 2, 10, False, True)


def test_an_unwritable_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"^cannot write the schedule to .*none/schedule.yaml"):
        write_schedule(PRESETS["uniform"](3), tmp_path / "none" / "schedule.yaml")


@given(schedule=schedules(), width=st.integers(4, 90))
def test_a_chart_has_a_row_for_every_layer_and_a_cell_for_every_column(schedule: GrowthSchedule, width: int) -> None:
    _, *rows, legend = chart(schedule, width).splitlines()
    assert legend == LEGEND
    cells = [row.rpartition("  ")[2] for row in rows]
    assert {len(row) for row in cells} == {width}
    names = [row.rpartition("  ")[0].strip() for row in rows]
    assert (names[0], names[-1]) == ("embedding", "head")
    drawn = [layer for name in names[1:-1] for layer in read_layers(name, "row", schedule.depth)]
    assert sorted(drawn) == list(range(schedule.depth))


@given(schedule=schedules(chance=False))
def test_every_glyph_is_the_layers_share_of_its_full_cost(schedule: GrowthSchedule) -> None:
    glyphs = {"█": 1.0, "▒": 2 / 3, "░": 1 / 3, "·": 0.0}
    rows = chart(schedule, len(schedule.phases)).splitlines()[2:-2]
    for row in rows:
        name, _, cells = row.rpartition("  ")
        for layer in read_layers(name.strip(), "row", schedule.depth):
            for phase, glyph in zip(schedule.phases, cells, strict=True):
                assert glyphs[glyph] == pytest.approx(layer_shares(phase, schedule.depth)[layer])


def test_a_chart_has_a_column_a_phase_at_least() -> None:
    numbers = chart(preset("published", 12), 60).splitlines()[0]
    starts = [numbers.index(digit) for digit in "123456"]
    assert [after - before for before, after in pairwise(starts)] == pytest.approx([14.4, 9.6, 9.6, 9.6, 9.6], abs=1)

    phases = tuple(Phase(f"phase {number}", 0.1, (0,)) for number in range(10))
    assert chart(GrowthSchedule("ten", 1, phases), 10).splitlines()[0].strip() == "1234567890"
    with pytest.raises(PlanError, match="width must be at least 6, one column per phase"):
        chart(preset("published", 12), 5)


def test_a_warning_is_among_the_words() -> None:
    schedule = GrowthSchedule("odd", 2, (Phase("a", 1, (0,), redraw=(1,)),))
    assert explain(schedule).splitlines()[-1].startswith("Warning: phase a gives layer 1 new random weights")
