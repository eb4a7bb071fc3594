"""`layerwise compare` on run folders: the page, the tables, the refusals, and the same in Python."""

from dataclasses import replace
from pathlib import Path

import pytest

import layerwise
from cli.command import heavy_imports, refused
from cli.command import layerwise as command
from layerwise.errors import OptionError, RunError
from layerwise.report import ReportData
from layerwise.results import Manifest, Run
from report.comparison.several import DEPTHS, sweeps

MODELS = ("small", "medium")


def write_run(folder: Path, data: ReportData, model: str) -> Path:
    manifest = Manifest(
        f"org/{model}", None, f"w-{model}", "float32", "cpu", "held out", "c1", 48, 9000, 256, ("painters",), (), 0
    )
    with Run.create(folder, manifest) as run:
        run.store.add_plans(data.plans)
        for measure in dict.fromkeys(score.measure for score in data.scores):
            rows = {row.key: row for row in data.scores if row.measure == measure}
            run.store.replace_scores(measure, rows.values())
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("runs")
    small, medium = (
        write_run(folder / name, data, name) for name, (_, data) in zip(MODELS, sweeps(*MODELS), strict=True)
    )
    return small, medium


def test_the_command_writes_a_page_and_prints_the_tables(runs: tuple[Path, Path], tmp_path: Path) -> None:
    ended = command("compare", *runs, "--output", tmp_path / "page.html")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines()[-1] == f"report: {tmp_path / 'page.html'}"
    assert "\nsmall " in ended.out
    assert "Transformer Layers as Painters" in ended.out
    assert (tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_python_has_the_rows_the_claims_a_table_and_the_page(runs: tuple[Path, Path], tmp_path: Path) -> None:
    result = layerwise.compare(*runs)
    assert tuple(result.data.runs) == MODELS
    assert {row.arm for row in result.rows if row.measure == "curve"} == set(MODELS)
    own = [row for row in result.claims if row.condition == "same_function"]
    assert [(row.arm, row.against, row.metric, row.value) for row in own] == [
        ("small", None, "supported", 1.0),
        ("medium", None, "supported", 1.0),
        (None, "every model", "holds", 2.0),
        (None, "any model", "holds", 2.0),
    ]
    table = result.table("layer")
    assert set(table["measure"]) == {"layer"}
    assert len(table[(table.arm == "small") & (table.condition == "skip") & (table.task == "all")]) == DEPTHS["small"]
    assert result.plot("layers-0").alternative == "Leave one layer out"
    assert result.report(tmp_path / "page.html").is_file()
    assert "small" in result.summary
    assert result.coincidences == []  # these runs have not stored what guessing loses
    assert "<li>The one claim that was measured" in result._repr_html_()


def test_python_refuses_before_anything_is_asked_of_the_result(runs: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="takes two runs or more"):
        layerwise.compare(runs[0])
    with pytest.raises(RunError, match="takes two runs or more"):
        layerwise.compare()
    with pytest.raises(OptionError, match="empty text"):
        layerwise.compare(runs[0], "")
    with pytest.raises(
        RunError, match=r"^--fail-if-worse is about evaluations, and runs were given; name RUN/lm_eval/PLAN"
    ):
        layerwise.compare(*runs, fail_if_worse=0.02)


def test_a_run_without_rows_is_refused(runs: tuple[Path, Path], tmp_path: Path) -> None:
    empty = write_run(tmp_path / "empty", replace(sweeps("small")[0][1], plans=(), scores=()), "empty")
    assert "has no rows yet" in refused("compare", runs[0], empty)


@pytest.mark.slow
def test_nothing_heavy_is_imported(runs: tuple[Path, Path], tmp_path: Path) -> None:
    assert heavy_imports("compare", *runs, "--output", tmp_path / "page.html") == []
