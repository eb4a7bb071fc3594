"""The page of claims over several runs; tests/golden/comparison freezes its texts."""

from dataclasses import replace

import pytest

from layerwise.page import ReportData, claims_page
from layerwise.page.claims import PAPERS, claims
from layerwise.results.rows import Score
from page import planted, synthetic


@pytest.fixture(scope="module")
def swept() -> ReportData:
    steps = [
        Score("contrast", metric, 0.3, 0.2, 0.4, claim="parallel", mde=0.1, tokens=9000)
        for metric in ("skip:parallel", "parallel:reverse")
    ]
    run = synthetic.run(6)
    command = ("/opt/bin/layerwise", "sweep", "a|b", "--run", "/somewhere/run", "--seed", "1")
    manifest = {**run.manifest, "model": "a|b", "tokens": 9000, "command": command}
    return replace(run, manifest=manifest, scores=(*run.scores, *steps))


@pytest.fixture(scope="module")
def page(swept: ReportData) -> str:
    return claims_page([swept, planted.DIAGNOSIS, planted.ROBUSTNESS])


def section(page: str, title: str) -> str:
    return page.partition(f"\n### {title}\n")[2].partition("\n#")[0]


def test_every_claim_of_every_paper_stands_there_with_its_citation_and_rule(page: str) -> None:
    for paper in PAPERS:
        assert f"\n## {paper.title}\n\n{paper.citation}.\n" in page
    for claim in claims(ReportData({}, (), ())):
        told = section(page, claim.name)
        assert claim.published.prose.citation in told
        assert ("\nRule: " in told) == bool(claim.published.prose.rule)


def test_a_run_is_a_model_a_text_and_a_command_without_where_its_rows_lie(page: str) -> None:
    assert "| 1 | a\\|b | 6 |" in page
    assert "| 9,000 | layerwise sweep 'a\\|b' --seed 1 |" in page
    assert "/somewhere" not in page


def test_tables_are_rectangular(page: str) -> None:
    for block in page.split("\n\n"):
        lines = [line for line in block.splitlines() if line.startswith("|")]
        assert len({line.replace("\\|", "").count("|") for line in lines}) <= 1
