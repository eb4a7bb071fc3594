"""The zones of several models side by side: their layers are counted, and drawn over relative depth."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import accumulate

import plotly.graph_objects as go
import pytest

from layerwise.experiments.summary import summary
from layerwise.plan import Plan
from layerwise.report import ReportData, render
from layerwise.report.kinds.comparison import partitions
from layerwise.results.rows import Score
from report.comparison.several import of_rows
from report.page.test_render import read

DEPTH = 12


def rows_of(sizes: Sequence[int]) -> Iterator[Score]:
    """The rows of a sweep whose states fall into zones of these sizes."""
    plan = str(Plan.identity(DEPTH))
    zone_of = [zone for zone, size in enumerate(sizes) for _ in range(size)]
    for i in range(DEPTH):
        yield Score.of("plan_states", "variance", 1.0, 0.9, 1.1, plan=plan, layer=i + 1)
        for j in range(i + 1, DEPTH):
            alike = 0.8 if zone_of[i] == zone_of[j] else 0.3
            yield Score.of("plan_states", "cosine", alike, plan=plan, layer=i + 1, other=j + 1)
    yield Score.of("zones", "zones", float(len(sizes)), plan=plan)
    yield Score.of("zones", "p", 0.4, plan=plan)
    for border in list(accumulate(sizes))[:-1]:
        yield Score.of("zones", "border", border + 1.0, plan=plan, layer=border + 1)
        yield Score.of("zones", "contrast", 0.5, 0.4, 0.6, plan=plan, layer=border + 1)
    yield Score("contrast", "three_zones", "all", "zones", float(len(sizes)))
    yield Score("contrast", "three_zones", "all", "beyond_walks", 0.3, 0.2, 0.4)
    yield Score("contrast", "three_zones", "all", "least", 0.5, 0.4, 0.6)


def compared_of(*sizes: Sequence[int]) -> ReportData:
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
    data = compared_of((3, 8, 1), (2, 9, 1))
    page = render(data)
    assert "One ending layer? Measured in all models; in every one of these: holds" in page
    (line,) = [line for line in summary(data).splitlines() if line.startswith("m0") and "|" in line]
    assert " ".join(line.split()).startswith("m0 3 0–2 | 3–10 | 11 3 (25 %) 8 (67 %) 1 (8 %)")
    rows = compared_of((3, 8, 1), (3, 6, 3)).rows.where(measure="claim", condition="one_ending")
    assert [(row.metric, row.value) for row in rows.where(against=None)] == [("supported", 1.0), ("contradicted", -1.0)]
    assert [row.metric for row in rows.where(against="every model")] == ["does not hold"]


def test_bars_cover_the_whole_depth_of_every_model() -> None:
    figure = json.loads(read(render(compared_of((3, 8, 1), (12,)))).json)["figures"]["zones"]["variants"][""]
    assert go.Figure(figure).data
    assert [trace["name"] for trace in figure["data"]] == ["beginning", "middle", "ending"]  # one behind another
    for model, shares in enumerate(([25.0, 800 / 12, 100 / 12], [100.0])):
        drawn = [x for trace in figure["data"] for x, y in zip(trace["x"], trace["y"], strict=True) if y == model]
        assert drawn == pytest.approx(shares)


def test_models_without_zones_are_named() -> None:
    page = render(of_rows(list(rows_of((3, 8, 1))), [], depth=DEPTH))
    assert "for want of 10 layers or of states: m1" in page
    assert "The depth was not divided into zones in any of the runs" in render(of_rows([], []))
