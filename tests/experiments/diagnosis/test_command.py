"""`layerwise diagnose` as a newcomer uses it: claims on the output, a report, refusals in words, and no loss."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.command import layerwise, refused
from cli.conftest import save_llama, save_texts
from layerwise.results import Run

PARTS = "proxies,structure,deltas,ablation,racing,order,agreement,pruning"
CLAIMS = (
    "Weights oscillate", "The oscillation is universal", "Core layers", "Anti-layers",
    "Importance spans orders of magnitude", "Redundant layers are redundant together", "Five metrics agree",
)  # fmt: skip
"""Those that the parts below decide, in the order of their paper."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A six-layer model and twenty short texts."""
    folder = tmp_path_factory.mktemp("diagnose")
    save_llama(folder / "model", depth=6)
    save_texts(folder / "texts", count=20, characters=60)
    return folder


@pytest.fixture(scope="module")
def diagnosed(folder: Path) -> tuple[Path, str, str]:
    """The run folder of a diagnosis, and what it wrote."""
    ended = layerwise(
        "diagnose", folder / "model", "--text", folder / "texts", "--parts", PARTS, "--run", folder / "run"
    )
    assert ended.code == 0, ended.err
    return folder / "run", ended.out, ended.err


@pytest.mark.slow
def test_it_begins_with_the_layers_and_ends_with_the_claims(diagnosed: tuple[Path, str, str]) -> None:
    folder, out, err = diagnosed
    lines = out.splitlines()
    verdicts = "supported|explained by the null|contradicted|not resolvable"
    claims = [line for line in lines if re.match(rf"- [^:]+: ({verdicts})\.", line)]
    assert [line.partition(":")[0].removeprefix("- ") for line in claims] == list(CLAIMS)
    assert lines[0].startswith("layer")
    assert lines[-1 - len(claims) : -1] == claims
    assert lines[-1] == f"report: {folder / 'report.html'}"
    assert err.index("question: which of its layers matter") < err.index("(1 of ")
    assert "pruning (8 of 8)" in err
    page = (folder / "report.html").read_text()
    for anchor in ("claims", "ablation", "racing", "deltas", "proxies", "structure", "agreement", "pruning"):
        assert f'id="{anchor}"' in page


@pytest.mark.slow
def test_report_and_export_know_a_diagnosis(diagnosed: tuple[Path, str, str], tmp_path: Path) -> None:
    folder, out, _ = diagnosed
    assert (
        layerwise("report", folder, "--output", tmp_path / "page.html").out.splitlines()[:-1] == out.splitlines()[:-1]
    )
    assert "explained" in layerwise("report", folder, "--format", "markdown").out
    assert layerwise("report", folder, "--format", "parquet", "--output", tmp_path / "rows").code == 0


@pytest.mark.slow
def test_another_question_is_another_run(diagnosed: tuple[Path, str, str], folder: Path) -> None:
    arguments = ("diagnose", folder / "model", "--text", folder / "texts", "--run", folder / "run")
    assert "This folder holds another run: its choice of plans or parts is" in refused(*arguments, "--parts", "deltas")


def test_what_cannot_be_asked_is_refused(folder: Path, tmp_path: Path) -> None:
    arguments = ("--text", folder / "texts", "--run", tmp_path / "run", "--parts", "ablatoin")
    assert "unknown part 'ablatoin'" in refused("diagnose", folder / "model", *arguments)
    assert not (tmp_path / "run").exists()


def test_a_race_within_a_budget(folder: Path, tmp_path: Path) -> None:
    arguments = ("--parts", "racing", "--budget", "700", "--run", tmp_path / "run", "--quiet")
    ended = layerwise("diagnose", folder / "model", "--text", folder / "texts", *arguments)
    assert ended.code == 0, ended.err
    with Run.open(tmp_path / "run") as run:
        race = run.store.scores("racing")
    assert {score.layer for score in race} == {*range(6), None}
    assert max(score.tokens or 0 for score in race) <= 700
