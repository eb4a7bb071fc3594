"""Zones of the depth: ranges, figures and the table."""

from dataclasses import replace

import pytest

from layerwise.page import ReportData
from layerwise.page.derived.zones import read_zones
from layerwise.page.render import build_chapters
from layerwise.results.rows import Score
from layerwise.studies.sweep.page import make_zone_table
from page import synthetic

DEPTH = 12
TRAINED = "0-11"


def zoned(borders: tuple[int, ...] = (4, 10), low: float | None = 0.1) -> ReportData:
    rows = []
    for plan, states in ((TRAINED, DEPTH), ("0-3", 4)):
        rows += [
            Score("plan_states", "variance", 1.0 + j, 0.9 + j, 1.1 + j, plan=plan, state=j)
            for j in range(1, states + 1)
        ]
        rows += [
            Score("plan_states", "cosine", 1 - 0.05 * (j - i), plan=plan, state=i, to_state=j)
            for i in range(1, states + 1)
            for j in range(i + 1, states + 1)
        ]
    rows.append(Score("zones", "zones", len(borders) + 1.0, plan=TRAINED))
    rows.append(Score("zones", "p", 0.4, plan=TRAINED))
    for border in borders:
        rows.append(Score("zones", "border", float(border), plan=TRAINED, state=border))
        rows.append(Score("zones", "contrast", 0.2, low, None if low is None else 0.3, plan=TRAINED, state=border))
    data = synthetic.run(DEPTH, ("leave_one_out",), tasks=("text",))
    return replace(data, scores=(*data.scores, *rows))


def test_zones_have_ranges() -> None:
    trained, short = read_zones(zoned())
    assert (trained.plan, trained.states, trained.ranges) == (TRAINED, DEPTH, ((1, 3), (4, 9), (10, 12)))
    assert (trained.beginning, trained.middle, trained.ending) == (3, 6, 3)
    assert (short.plan, short.states, short.ranges, short.p) == ("0-3", 4, (), None)


def test_each_plan_has_a_map_with_zones_and_variance() -> None:
    (chapter,) = [each for each in build_chapters(zoned()) if each.anchor == "zones"]
    trained, short, variance = (picture.variants[()] for picture in chapter.pictures)
    assert [frame["x0"] for frame in trained.layout["shapes"]] == [-0.5, 2.5, 8.5]
    assert trained.traces[0]["z"][0][2] == trained.traces[0]["z"][2][0] == 0.9
    assert (len(short.traces[0]["z"]), short.traces[0]["z"][3][3], "shapes" in short.layout) == (4, 1.0, False)
    lines = [trace for trace in variance.traces if trace["mode"] == "lines+markers"]
    assert [list(line["y"]) for line in lines] == [[1.0 + j for j in range(1, DEPTH + 1)], [2.0, 3.0, 4.0, 5.0]]
    body = make_zone_table(zoned()).body
    assert body[0][2] == "1–3 | 4–9 | 10–12"
    assert body[1] == ("0-3", "–", "–", "–", "–")


@pytest.mark.parametrize("p", [0.0099, 0.0101])
def test_the_zone_table_marks_values_near_the_margin(p: float) -> None:
    """More zones beat the random-walk null, but their borders are below 0.02."""
    by_margin = p < 0.01
    data = zoned(())
    scores = [replace(score, value=p) if score.metric == "p" else score for score in data.scores]
    run = replace(data, scores=tuple(scores))
    assert ("(below the 0.02 cosine threshold)" in make_zone_table(run).body[0][4]) == by_margin
