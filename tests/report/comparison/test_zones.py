"""The zones of several models side by side: their layers are counted, and drawn over relative depth."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import plotly.graph_objects as go
import pytest

from layerwise.plan import Plan
from layerwise.report import Compared, comparison_lines, over_models
from layerwise.report.comparison.chapters.zones import zones
from layerwise.report.comparison.tables import partition_rows
from layerwise.report.comparison.zones import partitions
from layerwise.report.figures.zones import zones_side_by_side
from layerwise.results.rows import Score
from report.comparison.several import of_rows

DEPTH = 12


def rows_of(sizes: Sequence[int]) -> Iterator[Score]:
    """The rows of a sweep whose states fall into zones of these sizes."""
    plan = str(Plan.identity(DEPTH))
    zone_of = [zone for zone, size in enumerate(sizes) for _ in range(size)]
    for i in range(DEPTH):
        yield Score.of("plan_states", "variance", 1.0, 0.9, 1.1, plan=plan, layer=i + 1)
        for j in range(i + 1, DEPTH):
            yield Score.of(
                "plan_states", "cosine", 0.8 if zone_of[i] == zone_of[j] else 0.3, plan=plan, layer=i + 1, other=j + 1
            )
    yield Score.of("zones", "zones", float(len(sizes)), plan=plan)
    yield Score.of("zones", "p", 0.4, plan=plan)
    for border in list(accumulate(sizes))[:-1]:
        yield Score.of("zones", "border", border + 1.0, plan=plan, layer=border + 1)
        yield Score.of("zones", "contrast", 0.5, 0.4, 0.6, plan=plan, layer=border + 1)
    yield Score("contrast", "three_zones", "all", "zones", float(len(sizes)))
    yield Score("contrast", "three_zones", "all", "beyond_walks", 0.3, 0.2, 0.4)
    yield Score("contrast", "three_zones", "all", "least", 0.5, 0.4, 0.6)


def compared_of(*sizes: Sequence[int]) -> Compared:
    return of_rows(*(list(rows_of(each)) for each in sizes), depth=DEPTH)


@pytest.mark.parametrize(
    ("sizes", "counts"),
    [
        ((3, 6, 3), (3, 6, 3)),
        ((2, 9, 1), (2, 9, 1)),
        ((12,), (0, 12, 0)),
        ((4, 4, 4), (0, 4, 8)),
        ((2, 2, 8), (4, 8, 0)),
    ],
)
def test_layers_are_counted_before_in_and_after_the_longest_zone(
    sizes: tuple[int, ...], counts: tuple[int, int, int]
) -> None:
    (own, *_) = partitions(compared_of(sizes, (12,))).values()
    assert (own.beginning, own.middle, own.ending) == counts


def test_zones_stand_side_by_side_with_the_claim_over_models() -> None:
    compared = compared_of((3, 8, 1), (2, 9, 1))
    rows = partition_rows(compared).body
    assert rows[0][:6] == ("m0", "3", "0–2 | 3–10 | 11", "3 (25 %)", "8 (67 %)", "1 (8 %)")
    assert "The zones of the depth" in comparison_lines(compared, ())
    (of_ending,) = [
        claim for _, claims in over_models(compared) for claim in claims if claim.published.key == "one_ending"
    ]
    assert (of_ending.in_every, of_ending.in_any) == ("holds", "holds")
    html = "".join(zones(compared, over_models(compared)).body)
    assert "One ending layer? Measured in all models; in every one of these: holds" in html


def test_one_model_with_more_ending_layers_refutes_the_claim() -> None:
    compared = compared_of((3, 8, 1), (3, 6, 3))
    claims = {claim.published.key: claim for _, each in over_models(compared) for claim in each}
    assert claims["one_ending"].in_every == "does not hold"
    assert claims["one_ending"].shown == ("m0",)
    assert claims["one_ending"].refuted == ("m1",)


def test_bars_cover_the_whole_depth_of_every_model() -> None:
    named = list(partitions(compared_of((3, 8, 1), (12,))).items())
    figure = zones_side_by_side(named)
    assert go.Figure(figure.payload()).data
    bars = figure.traces
    for row in range(2):
        pieces = sorted(
            (base, width)
            for each in bars
            for base, width, y in zip(each["base"], each["x"], each["y"], strict=True)
            if y == row
        )
        assert pieces[0][0] == 0.0
        assert sum(width for _, width in pieces) == pytest.approx(100.0)
    assert [each["name"] for each in bars] == ["beginning", "middle", "ending"]


def test_models_without_zones_are_named() -> None:
    compared = of_rows(list(rows_of((3, 8, 1))), [], depth=DEPTH)
    assert "for want of 10 layers or of states: m1" in "".join(zones(compared, ()).body)
    assert zones(of_rows([], []), ()).is_empty
