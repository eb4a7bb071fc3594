"""Every verb on a real model and text files: output, files written and exit code."""

import sqlite3
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from cli.command import layerwise
from cli.conftest import DEPTH, save_llama
from layerwise.plan import Plan, families
from layerwise.results import Run
from layerwise.runner import terminal
from layerwise.runner.summary import report_data

FEW = ("--families", "leave_one_out", "--no-similarity")


@pytest.fixture(scope="module")
def swept(model: Path, texts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "swept"
    ended = layerwise("sweep", model, "--text", texts, "--run", folder, "--plan", "0 (1|2) 3", *FEW)
    assert ended.code == 0, ended.err
    return folder


def test_a_sweep_stores_rows_and_writes_its_report(swept: Path, model: Path) -> None:
    with Run.open(swept) as run:
        plans = {"0-3", "0 (1|2) 3", *(str(member.plan) for member in families.leave_one_out(DEPTH))}
        losses = list(run.store.losses())
        assert {row.plan for row in losses} == plans
        windows = {(row.document, row.window) for row in losses}
        assert len({document for document, _ in windows}) == 10
        assert len(losses) == len(windows) * len(plans)
        assert run.manifest.command[1] == "sweep"
        effects = {(score.plan, score.metric): score for score in run.store.scores("effect")}
        assert {plan for plan, metric in effects if metric == "delta_nll"} == plans - {"0-3"}
        assert all(effects[plan, "delta_nll"].low is not None for plan in plans - {"0-3"})
        assert run.store.scores("similarity") == []
        figures = {score.metric: score.value for score in run.store.scores("run")}
        assert figures["evaluations_ratio"] == 1
        assert figures["parameters"] == AutoModelForCausalLM.from_pretrained(model).num_parameters()
        assert figures["evaluations_bound"] < figures["evaluations_naive"]
    assert swept.joinpath("report.html").read_text().startswith("<!doctype html>")


def test_tokens_and_max_length_limit_the_text(model: Path, texts: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    limits = ("--tokens", "300", "--max-length", "40", "--batch-tokens", "100", "--seed", "3")
    assert layerwise("sweep", model, "--text", texts, "--run", run, *FEW, *limits).code == 0
    with Run.open(run) as opened:
        assert (opened.manifest.window, opened.manifest.seed) == (40, 3)
        assert 200 < opened.manifest.tokens <= 300


@pytest.mark.parametrize("depth", [1, 2])
def test_shallow_models_have_fewer_families(texts: Path, tmp_path: Path, depth: int) -> None:
    folder = save_llama(tmp_path / "shallow", depth)
    ended = layerwise("sweep", folder, "--text", texts, "--run", tmp_path / "run", "--no-similarity")
    if depth == 1:
        assert ended.code == 2
        assert "The family 'painters' does not exist for a model of 1 layer (" in ended.err
        assert "Possible families: leave_branch_out, repeat_blocks" in ended.err
        assert not (tmp_path / "run").exists()
        ended = layerwise("sweep", folder, "--text", texts, "--run", tmp_path / "run", "--families", "")
    assert ended.code == 0, ended.err
    assert (tmp_path / "run" / "report.html").is_file()


def test_plans_can_be_given_without_quotes() -> None:
    assert layerwise("plan", "0-13", "18-31").out == layerwise("plan", "0-13 18-31").out


@pytest.mark.parametrize("depth", [2, 12, 32, 80])
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_wiring_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, depth: int, columns: int) -> None:
    # The console reads COLUMNS once, when it is created: setting it in the runner would fix the width for good.
    monkeypatch.setattr(terminal.output, "_width", columns)
    middle = depth // 2
    drawn = [
        line for line in layerwise("plan", str(Plan.identity(depth)), f"({middle}|0)*2").out.splitlines() if "█" in line
    ]
    picture = [line for line in drawn if not line.startswith("rows:")]
    assert 2 <= len(picture) <= 50
    assert max(map(len, picture)) <= columns
    assert max(map(len, picture)) >= min(columns - 10, 2 * depth, 90)


def test_verify_prints_every_law(model: Path) -> None:
    ended = layerwise("verify", model, "--plan", "0 (1|2)*2 3 3")
    assert ended.code == 0, ended.out
    lines = ended.out.splitlines()
    assert lines[0] == f"{model.name} under 0 (1|2)*2 3 3"
    assert sum(line.startswith("holds") for line in lines) == len(lines) - 1 >= 7
    assert "cached decoding = recomputation (left-padded)" in ended.out


def test_verify_reports_failed_laws(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from layerwise import stack

    laws = [stack.Law("the sky is up", True, "[as seen]"), stack.Law("water runs uphill", False, "by 2 m")]
    monkeypatch.setattr(stack, "verify", lambda *_, **options: laws)
    ended = layerwise("verify", model)
    assert ended.code == 1
    assert ended.out.splitlines()[0].endswith("under 0-3")
    assert "holds  the sky is up      [as seen]" in ended.out
    assert "FAILS  water runs uphill  by 2 m" in ended.out


def test_reports_can_be_written_elsewhere(swept: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    ended = layerwise("report", swept, "--output", page)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith(f"report: {page}\n")
    assert page.read_text() == swept.joinpath("report.html").read_text()


def test_markdown_reports_write_no_page(swept: Path) -> None:
    before = swept.joinpath("report.html").stat().st_mtime_ns
    ended = layerwise("report", swept, "--format", "markdown")
    assert ended.code == 0
    assert ended.out.startswith("#")
    assert "| " in ended.out
    assert swept.joinpath("report.html").stat().st_mtime_ns == before


def test_interrupted_runs_are_reported_on_shared_windows(swept: Path, tmp_path: Path) -> None:
    half = tmp_path / "half"
    half.mkdir()
    half.joinpath("manifest.json").write_bytes(swept.joinpath("manifest.json").read_bytes())
    with sqlite3.connect(swept / "run.sqlite") as whole, sqlite3.connect(half / "run.sqlite") as cut:
        whole.backup(cut)
        cut.execute("DELETE FROM scores")
        kept = "SELECT DISTINCT document FROM losses ORDER BY document LIMIT 9"
        cut.execute(f"DELETE FROM losses WHERE plan = (SELECT max(plan) FROM losses) AND document NOT IN ({kept})")
    whole.close()
    cut.close()
    with Run.open(half) as run:
        (documents,) = {score.documents for score in report_data(run).scores}
    assert documents == 9
    ended = layerwise("report", half, "--format", "markdown")
    assert ended.code == 0, ended.err
    assert "| 1-3 " in ended.out


def test_unexpected_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(text: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Plan, "parse", fail)
    with pytest.raises(ZeroDivisionError):
        layerwise("plan", "0-3")


def test_findings_of_several_runs_share_a_page(swept: Path, tmp_path: Path) -> None:
    printed = layerwise("report", swept, "--format", "findings")
    assert printed.code == 0
    assert printed.out.startswith("# Do published findings hold?\n")
    written = layerwise("report", swept, swept, "--format", "findings", "--output", tmp_path / "findings.md")
    assert written.out == f"report: {tmp_path / 'findings.md'}\n"
    assert "\n| 2 | " in (tmp_path / "findings.md").read_text(encoding="utf-8")
