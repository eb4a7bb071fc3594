"""Layer weights of a model and the wiring of a plan."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerwise.errors import PlanError
from layerwise.plan import Plan, family
from layerwise.plan.layer_weights import Edge, EdgeCut, LayerWeights
from layerwise.plan.wiring import picture

NO_CUTS = ("", "30", "0%", "100%", "-5%", "nan%", "3<0", "3<-", "<-3", "out<-out", "3<-0,", "3<-0+", "9" * 5_000 + "%")
WEIGHTS = st.floats(-4, 4, allow_nan=False).filter(lambda weight: abs(weight) > 1e-6)
DENSE = LayerWeights.of([[1, 0, 0, 0], [0.4, 0.6, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.2, 0.3, 0.4]], depth=3)


@st.composite
def wirings(draw: st.DrawFn) -> LayerWeights:
    depth = draw(st.integers(1, 6))
    rows = []
    for reader in range(depth + draw(st.integers(0, 1))):
        sources = draw(st.sets(st.integers(0, reader), min_size=1))
        rows.append(tuple((source, draw(WEIGHTS)) for source in sorted(sources)))
    return LayerWeights(depth, tuple(rows))


@given(wiring=wirings())
def test_the_matrix_gives_the_wiring_back(wiring: LayerWeights) -> None:
    assert LayerWeights.of(wiring.matrix(), wiring.depth) == wiring


@given(wiring=wirings())
def test_live_sources_are_those_not_yet_dropped(wiring: LayerWeights) -> None:
    last = wiring.last_readers()
    assert len(last) == wiring.depth + 1
    held: set[int] = set()
    for reader in range(wiring.depth + 1):
        if last[reader] is not None:
            held.add(reader)
        reads = [source for source, _ in wiring.rows[reader]] if reader < len(wiring.rows) else [wiring.depth]
        assert set(reads) <= held
        held = {source for source in held if last[source] != reader}
    assert not held


@given(wiring=wirings(), data=st.data())
def test_a_cut_takes_one_edge_and_keeps_the_sum(wiring: LayerWeights, data: st.DataObject) -> None:
    edge = data.draw(st.sampled_from(sorted(wiring)))
    row = dict(wiring.rows[edge.reader])
    left = {source: weight for source, weight in row.items() if source != edge.source}
    if not left:
        with pytest.raises(PlanError, match=r"at least one of the edges .+<-\* must remain"):
            wiring.without(edge)
        return
    plain = wiring.without(edge, renormalize=False)
    assert len(plain) == len(wiring) - 1
    assert dict(plain.rows[edge.reader]) == left
    if abs(sum(left.values())) > 1e-2 * abs(sum(row.values())):
        scaled = wiring.without(edge)
        assert sum(dict(scaled.rows[edge.reader]).values()) == pytest.approx(sum(row.values()))
        assert [scaled.rows[r] for r in range(len(wiring.rows)) if r != edge.reader] == [
            wiring.rows[r] for r in range(len(wiring.rows)) if r != edge.reader
        ]


@pytest.mark.parametrize(
    ("depth", "rows", "said"),
    [
        (1, (((1, 1.0),),), "the sources of layer 0 must be distinct, ascending and at most 0"),
        (1, (((0, math.nan),),), r"the weight of 0<-0 must be a finite number such as 0\.5"),
        (2, (((0, 1.0),), ()), "layer 1 must read at least one earlier state"),
        (2, (((0, 1.0),),), "a wiring of 2 layers must have 2 rows, or one more for the output"),
        (0, (), "depth must be from 1 to 10000"),
        (1, (((0, 1.0),), ((0, 1.0), (0, 1.0))), "the sources of the output must be distinct, ascending and at most 1"),
    ],
)
def test_invalid_wirings_are_refused(depth: int, rows: tuple[tuple[tuple[int, float], ...], ...], said: str) -> None:
    with pytest.raises(PlanError, match=said):
        LayerWeights(depth, rows)


@pytest.mark.parametrize(
    ("text", "removed"),
    [
        ("20%", {Edge(3, 0), Edge(2, 0)}),  # weights 0.1 and, the first of two, 0.2
        ("99.9%", set(DENSE) - {Edge(0, 0), Edge(1, 1), Edge(2, 2), Edge(3, 3)}),
        ("1<-0+2<-1", {Edge(1, 0), Edge(2, 1)}),
        ("*<-1", {Edge(1, 1), Edge(2, 1), Edge(3, 1)}),
        ("2<-*", {Edge(2, 0), Edge(2, 1)}),
    ],
)
def test_a_cut_removes_the_edges_that_it_names_and_spares_the_last_of_a_reader(text: str, removed: set[Edge]) -> None:
    left = EdgeCut.parse(text).apply(DENSE)
    assert set(DENSE) - set(left) == removed
    assert [sum(row) for row in left.matrix()] == pytest.approx([1.0] * 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((text, "must be a percentage between 0 and 100, such as 30%, or edges") for text in NO_CUTS),
        ("7<-0", "no edge matches 7<-0"),
        ("1<-2", "no edge matches 1<-2"),
        ("0<-0", "0<-0 removes nothing, as every layer keeps at least one edge"),
        ("1%", "1% removes nothing"),
    ],
)
def test_a_cut_of_no_edge_is_refused(text: str, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        EdgeCut.parse(text).apply(DENSE)


def test_cuts_that_cannot_be_are_refused() -> None:
    with pytest.raises(PlanError, match=r"no edge out<-7"):
        DENSE.without(Edge(3, 7))
    signed = LayerWeights.of([[1, 0], [1, 0.5], [-0.5, 0.5, 1]], depth=2)
    with pytest.raises(PlanError, match=r"out<-\* sum to 0, too close to zero to rescale them to 1"):
        signed.without(Edge(2, 2))
    assert signed.without(Edge(2, 2), renormalize=False).rows[2] == ((0, -0.5), (1, 0.5))


def test_a_plan_too_long_to_write_out_is_refused() -> None:
    with pytest.raises(PlanError, match="at most 2,000 steps"):
        Plan.parse("0*2001").matrix()


def test_a_picture_shades_what_each_step_reads() -> None:
    assert picture(Plan.parse("0 (1|2):gain=-1 (3|4|5|6|7|8)")).splitlines()[-1] == "out  ████" + "−" * 4 + "░" * 12
    assert picture(Plan.parse("10 (1|2):sum")).splitlines() == [" 10  ██", "  1  ████", "  2  ████··", "out  ████████"]
    assert picture(Plan.parse("10.attn 2.mlp")).splitlines() == ["10.attn  ██", "  2.mlp  ████", "    out  ██████"]
    assert picture(Plan.parse("(0|1)")).splitlines()[-1] == "out  ██▓▓▓▓"

    members = {member.strategy: member.plan for member in family("painters", 80) if member.affected == 79}
    assert set(picture(members["reverse"], size=20)) <= set("0123456789out \n█")
    last = picture(members["parallel"], size=20).splitlines()[-1].split()[-1]
    # Four columns per cell: the first has the embedding, layer 0, and two of the 79 weights of 1/79.
    assert last == "▓" * 2 + "░" * 38


@pytest.mark.parametrize("text", ["0-99", "0-9 (10|11|12-90|91)*2 92-99", "0*1999"])
def test_a_long_plan_is_drawn_within_the_size(text: str) -> None:
    lines = picture(Plan.parse(text), size=40).splitlines()
    assert len(lines) == 40
    assert max(map(len, lines)) == 3 + 2 + 2 * 40


@pytest.mark.parametrize("size", [0, -3, 2.5])
def test_a_size_is_a_number_of_cells(size: int) -> None:
    with pytest.raises(PlanError, match="size must be an integer of at least 1"):
        picture(Plan.identity(4), size=size)
