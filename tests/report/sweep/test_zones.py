"""Zones on the page: their ranges, the maps with their frames, the variance, and the finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.report import Evidence, ReportData
from layerwise.report.claims import CLAIMS
from layerwise.report.figures.zones import variance_by_depth, zone_map
from layerwise.report.page.groups import written
from layerwise.report.sweep.zones import plan_zones, zone_table, zones_finding
from layerwise.results.rows import Score
from report import synthetic

DEPTH = 12
TRAINED = "0-11"


def zoned(borders: tuple[int, ...] = (4, 10), low: float | None = 0.1) -> ReportData:
    """A sweep whose states under the trained order are cut at the borders, and those of a short plan are not."""
    rows = []
    for plan, states in ((TRAINED, DEPTH), ("0-3", 4)):
        rows += [
            Score.of("plan_states", "variance", 1.0 + j, 0.9 + j, 1.1 + j, plan=plan, layer=j)
            for j in range(1, states + 1)
        ]
        rows += [
            Score.of("plan_states", "cosine", 1 - 0.05 * (j - i), plan=plan, layer=i, other=j)
            for i in range(1, states + 1)
            for j in range(i + 1, states + 1)
        ]
    rows.append(Score.of("zones", "zones", len(borders) + 1.0, plan=TRAINED))
    rows.append(Score.of("zones", "p", 0.4, plan=TRAINED))
    for border in borders:
        rows.append(Score.of("zones", "border", float(border), plan=TRAINED, layer=border))
        rows.append(Score.of("zones", "contrast", 0.2, low, None if low is None else 0.3, plan=TRAINED, layer=border))
    data = synthetic.run(DEPTH, ("leave_one_out",), tasks=("text",))
    return replace(data, scores=(*data.scores, *rows))


def test_zones_are_read_with_their_ranges_and_few_states_have_none() -> None:
    trained, short = plan_zones(Evidence.of(zoned()))
    assert (trained.plan, trained.ranges) == (TRAINED, ((1, 3), (4, 9), (10, 12)))
    assert (short.plan, short.ranges, short.p) == ("0-3", (), None)
    assert trained.cosine[0][2] == trained.cosine[2][0] == 0.9
    assert trained.cosine[5][5] == 1.0


def test_every_zone_is_framed_and_a_single_one_is_not() -> None:
    (trained, _), (one, _) = plan_zones(Evidence.of(zoned())), plan_zones(Evidence.of(zoned(())))
    assert [frame["x0"] for frame in zone_map(trained, 0.0).layout["shapes"]] == [0.5, 3.5, 9.5]
    assert "shapes" not in zone_map(one, 0.0).layout


def test_the_variance_has_a_line_for_each_plan() -> None:
    drawn = variance_by_depth([(each.plan, each) for each in plan_zones(Evidence.of(zoned()))])
    assert [trace["name"] for trace in drawn.traces] == [TRAINED, "0-3"]
    assert drawn.traces[1]["y"] == [2.0, 3.0, 4.0, 5.0]


def test_the_finding_says_how_many_zones_and_what_their_borders_are_worth() -> None:
    three, one = zones_finding(Evidence.of(zoned())), zones_finding(Evidence.of(zoned(())))
    bare = zones_finding(Evidence.of(zoned(low=None)))
    assert three is not None
    assert one is not None
    assert bare is not None
    assert three.text.startswith("3 zones: states 1–3 | 4–9 | 10–12.")
    assert (three.state, one.state, bare.state) == ("resolved", "unresolved", "unresolved")
    assert one.text.startswith("One: hidden states 1–12")
    assert zones_finding(Evidence.of(synthetic.run(DEPTH))) is None


@pytest.mark.parametrize("p", [0.0099, 0.0101])
def test_where_the_margin_decides_the_finding_the_table_and_the_claims_say_so(p: float) -> None:
    """More zones are clearer than walks give, and still there is one: their borders are worth less than 0.02."""
    by_margin = p < 0.01
    data = zoned(())
    scores = [replace(score, value=p) if score.metric == "p" else score for score in data.scores]
    decisive = [("zones", 1.0, None), ("beyond_walks", 0.0, 0.0499)]
    scores += [
        Score("contrast", "three_zones", "all", metric, value, high and -0.1, high) for metric, value, high in decisive
    ]
    evidence = Evidence.of(replace(data, scores=tuple(scores)))
    finding = zones_finding(evidence)
    assert finding is not None
    assert ("the margin decides, and not the walks" in finding.text) == by_margin
    assert ("No border is clearer than a walk gives" in finding.text) != by_margin
    assert ("(borders worth less than 0.02 of cosine)" in zone_table(evidence).body[0][4]) == by_margin
    for rule in ("three_zones", "one_ending"):
        claim = CLAIMS[rule].decide(evidence)
        assert (claim.verdict, "the margin decides" in claim.why) == ("explained by the null", by_margin)


def test_the_chapter_has_a_map_for_each_plan_the_variance_and_the_table() -> None:
    evidence = Evidence.of(zoned())
    (chapter,) = [each for each in written(evidence) if each.anchor == "zones"]
    assert [picture.name for picture in chapter.pictures] == ["zones-0", "zones-1", "variance"]
    body = zone_table(evidence).body
    assert body[0][0] == TRAINED
    assert body[0][2] == "1–3 | 4–9 | 10–12"
    assert body[1] == ("0-3", "–", "–", "–", "–")
    assert "zones" not in {each.anchor for each in written(Evidence.of(synthetic.run(DEPTH)))}
