"""The text and chart of a schedule; the chart has one cell per layer and time."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drawn_schedules import schedules
from layerwise.errors import PlanError
from layerwise.plan.schedule import GrowthSchedule, Phase, chart, explain, preset
from layerwise.plan.schedule.cost import layer_shares
from layerwise.plan.schedule.explain import LEGEND
from layerwise.plan.schedule.serialization import read_layers


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


def test_the_columns_of_the_published_phases() -> None:
    numbers = chart(preset("published", 12), 60).splitlines()[0]
    starts = [numbers.index(digit) for digit in "123456"]
    assert [after - before for before, after in pairwise(starts)] == pytest.approx([14.4, 9.6, 9.6, 9.6, 9.6], abs=1)


def test_one_column_a_phase_is_the_least() -> None:
    phases = tuple(Phase(f"phase {number}", 0.1, (0,)) for number in range(10))
    assert chart(GrowthSchedule("ten", 1, phases), 10).splitlines()[0].strip() == "1234567890"
    with pytest.raises(PlanError, match="a chart of 6 phases is as many columns wide or more, not 5"):
        chart(preset("published", 12), 5)


def test_every_field_is_told() -> None:
    schedule = GrowthSchedule(
        "all there is",
        6,
        (
            Phase("low", 0.25, (0, 1), present=(0, 1, 3), head=False, rate=2, shape="linear", warmup=0.1),
            Phase("top", 0.25, (4,), embedding=False, optimizer="drop", redraw=(5,)),
            Phase("drawn", 0.25, (0, 1, 2), sample=1, every=20, copies=((4, 0), (5, 1)), scale=((2, 0.9), (3, 0.5))),
            Phase("dropped", 0.25, tuple(range(6)), drop=(0.0, 0.5), shape="constant"),
        ),
    )
    assert explain(schedule).splitlines() == [
        "all there is, for 6 layers:",
        "low, 25 % of the steps: layers 0, 1 and the embedding learn, at 2 x the learning rate, in a line down to 0, "
        "with a warm-up over its first 10 %; layer 3 and the head are frozen; layers 2, 4, 5 do not run.",
        "top, 25 % of the steps: layer 4 and the head learn; layers 0 to 3, 5 and the embedding are frozen.",
        "    First layer 5 is given new random weights; the optimiser forgets its moments.",
        "drawn, 25 % of the steps: the embedding and the head learn throughout, and 1 of layers 0 to 2 at a time, "
        "drawn anew every 20 steps; layers 3 to 5 are frozen.",
        "    First layers 4, 5 take the weights of layers 0, 1; the matrices of layer 2 are multiplied by 0.9; the "
        "matrices of layer 3 are multiplied by 0.5.",
        "dropped, 25 % of the steps: everything learns, at a constant rate; layers are left out by chance, the last "
        "with a probability of 0 at first and 0.5 at the end, those before it with less.",
    ]


def test_a_warning_is_among_the_words() -> None:
    schedule = GrowthSchedule("odd", 2, (Phase("a", 1, (0,), redraw=(1,)),))
    assert explain(schedule).splitlines()[-1].startswith("Warning: phase a gives layer 1 new random weights")
