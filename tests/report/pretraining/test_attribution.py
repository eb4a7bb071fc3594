"""What the report says of attribution: preferences with their nulls, and who differs from the backbone."""

from __future__ import annotations

from layerwise.report.pretraining.attribution import attribution_findings, attribution_rows
from layerwise.report.pretraining.chapters.attribution import attribution
from layerwise.report.pretraining.lookup import PretrainingScores

from layerwise.report import Evidence, ReportData
from report import pretrained

ROWS = tuple(pretrained.attributed())
FOUND = PretrainingScores.of(ROWS)


def test_the_finding_has_the_null_of_each_arm_and_names_who_differs() -> None:
    (finding,) = attribution_findings(FOUND)
    assert "ltg -23.0 [-27.0, -19.0] (shuffled labels 0.00" in finding.text.replace("−", "-")
    assert finding.text.endswith("Different from ltg: elc.")
    assert finding.state == "resolved"


def test_an_arm_has_its_shares_beside_both_nulls() -> None:
    table = attribution_rows(FOUND)
    assert [row[0] for row in table.body] == ["ltg", "elc", "zero"]
    assert table.body[1][1:3] == ("30.0 [27.0, 33.0]", "22")
    assert len(table.head) == len(table.body[0]) == 9


def test_without_differences_nothing_is_judged() -> None:
    alone = PretrainingScores.of([row for row in ROWS if row.measure == "attribution"])
    (finding,) = attribution_findings(alone)
    assert finding.state == "described"
    assert "Different" not in finding.text


def test_the_chapter_says_how_complete_it_is() -> None:
    chapter = attribution(Evidence.of(ReportData({}, (), ROWS)))
    assert "At most 0.40 % is missing" in "".join(map(str, chapter.body))
