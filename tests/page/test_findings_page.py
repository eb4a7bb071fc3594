"""The page of findings over several runs; tests/golden/comparison freezes its texts."""

from dataclasses import replace

import pytest

from layerwise.page import ReportData, findings_page
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
    return findings_page([swept, planted.DIAGNOSIS, planted.ROBUSTNESS])


def test_runs_are_described_without_their_directory(page: str) -> None:
    assert "| 1 | a\\|b | 6 |" in page
    assert "| 9,000 | layerwise sweep 'a\\|b' --seed 1 |" in page
    assert "/somewhere" not in page
