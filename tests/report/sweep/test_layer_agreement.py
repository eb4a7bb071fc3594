"""What a run says of changes that rank the layers: alike only where p and size both say so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from layerwise.report import ReportData, findings
from layerwise.report.derived.layer_agreement import ALIKE, listed_pairs, matrix
from layerwise.report.kinds.sweep import SWEEP
from layerwise.results.rows import Score
from layerwise.results.vocabulary import CONTRAST, CORRECTED, LAYER_AGREEMENT, RELIABILITY, SPEARMAN
from report import synthetic

QUESTION = "Do changes of a layer rank the layers alike?"


def pair(arm: str, against: str, rho: float, p: float) -> list[Score]:
    about = {"claim": LAYER_AGREEMENT, "arm": arm, "against": against, "p": p, "p_adjusted": p}
    return [
        Score(CONTRAST, SPEARMAN, 0.8 * rho, **about),  # type: ignore[arg-type]
        Score(CONTRAST, CORRECTED, rho, rho - 0.1, rho + 0.1, **about),  # type: ignore[arg-type]
    ]


def run(*pairs: tuple[str, str, float, float]) -> ReportData:
    own = synthetic.run(6)
    rows = [row for each in pairs for row in pair(*each)]
    alone = Score(CONTRAST, RELIABILITY, 0.9, claim=LAYER_AGREEMENT, arm="removed")
    return replace(own, scores=(*own.scores, *rows, *([alone] if rows else [])))


def answer(data: ReportData) -> tuple[str, str] | None:
    return next(((each.state, each.text) for each in findings(data) if each.question == QUESTION), None)


def test_pairs_are_named_and_bits_are_answered() -> None:
    found = answer(run(("removed", "run twice", 0.8, 0.001), ("removed", "at Q4_0", 0.1, 1.0)))
    assert found is not None
    state, text = found
    assert state == "resolved"
    assert text.startswith("1 of 2 pairs of changes is shown to rank the layers alike: removed and run twice +0.80")
    assert "That layers which can go need few bits is not shown. Removed and at Q4_0 +0.10" in text
    assert text.endswith("p 1.00 (measured 0.0800).")
    turned = answer(run(("run twice", "removed", 0.8, 0.001), ("at Q4_0", "removed", 0.1, 1.0)))
    assert turned is not None
    assert turned[1].partition(". That ")[2] == text.partition(". That ")[2]


@pytest.mark.parametrize(
    ("rho", "p", "alike"),
    [(ALIKE + 1e-6, 0.05, True), (ALIKE, 0.05, False), (ALIKE + 1e-6, 0.05 + 1e-6, False), (-0.9, 0.001, False)],
)
def test_alike_takes_both_a_size_and_a_p(rho: float, p: float, alike: bool) -> None:
    found = answer(run(("removed", "at Q4_0", rho, p)))
    assert found is not None
    assert (found[0] == "resolved") == alike
    assert ("is shown." in found[1]) == alike


def test_a_run_with_one_change_asks_nothing() -> None:
    assert answer(run()) is None
    (section,) = (each for each in SWEEP.sections if each.anchor == LAYER_AGREEMENT)
    assert not section.needs(run())
    data = run(("removed", "at Q4_0", 0.3, 0.2))
    assert section.needs(data)
    assert [(row.arm, row.against) for row in matrix(data)] == [("removed", "at Q4_0"), ("at Q4_0", "removed")]
    assert {row.condition for row in listed_pairs(data)} == {"removed", "removed and at Q4_0"}
