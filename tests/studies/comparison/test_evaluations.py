"""`layerwise compare`: runs and evaluations of lm-eval."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import layerwise
from cli.command import heavy_imports, refused
from cli.command import layerwise as command
from layerwise.errors import OptionError, RunError
from layerwise.page import ReportData
from layerwise.results import Manifest, Run
from page.comparison.several import DEPTHS, sweeps
from studies.comparison.evaluation_folders import Evaluation, accuracies

BYTES = np.arange(100, 140)
BASE = {
    "arc": {"acc": accuracies(400, 30, 70, 1_000)[0]},
    "gsm8k": {"exact_match": accuracies(300, 20, 21, 800)[0]},
    "wikitext": {"bits_per_byte": [[-0.6 * int(each), int(each)] for each in BYTES]},
}
OTHER = {
    "arc": {"acc": accuracies(400, 30, 70, 1_000)[1]},
    "gsm8k": {"exact_match": accuracies(300, 20, 21, 800)[1]},
    "wikitext": {"bits_per_byte": [[-0.6 * int(each) - 0.1 * (at % 3), int(each)] for at, each in enumerate(BYTES)]},
}

FEW, FEW_OTHERS = (
    {"arc": {"acc": right}, "wikitext": {"bits_per_byte": tasks["wikitext"]["bits_per_byte"][:20]}}
    for tasks, right in zip((BASE, OTHER), accuracies(12, 3, 5, 40), strict=True)
)


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("few")
    return Evaluation(FEW).write(folder / "base"), Evaluation(FEW_OTHERS, "quantized").write(folder / "quantized")


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("evaluations")
    return Evaluation(BASE).write(folder / "base"), Evaluation(OTHER, "quantized").write(folder / "quantized")


def test_the_command_prints_a_table_and_writes_a_page(sides: tuple[Path, Path], tmp_path: Path) -> None:
    ended = command("compare", *sides, "--output", tmp_path / "page.html")
    assert (ended.code, ended.err) == (0, "")
    head, arc, gsm8k, wikitext, *rest = ended.out.splitlines()
    names = "task metric decision difference p p, corrected detectable documents needed for 0.01"
    assert " ".join(head.split()) == names
    assert " ".join(arc.split()) == "arc acc worse −0.0400 [−0.0595, −0.0203] <0.001 <0.001 0.0388 1,000 –"
    assert gsm8k.split()[:3] == ["gsm8k", "exact_match", "inconclusive"]
    assert wikitext.split()[:3] == ["wikitext", "bits_per_byte", "alike"]
    assert (
        rest[0]
        == "- Of 3 differences from base, with a margin of ±0.01: 1 worse, 0 better, 1 alike and 1 inconclusive."
    )
    assert rest[-1] == f"report: {tmp_path / 'page.html'}"
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>quantized compared with base</h1>" in page
    assert "1 worse, 0 better, 1 alike and 1 inconclusive" in page


def test_the_exit_code_reports_a_significant_loss(sides: tuple[Path, Path], tmp_path: Path) -> None:
    page = ("--output", tmp_path / "page.html")
    failed = command("compare", *sides, "--fail-if-worse", "0.01", *page)
    assert failed.code == 1
    assert "- FAILS: scores shown to have lost more than 0.01: acc of arc (quantized, +0.0400 [" in failed.out
    passed = command("compare", *sides, "--fail-if-worse", "0.03", *page)
    assert passed.code == 0
    assert "- Passes: no score is shown to have lost more than 0.03.\n" in passed.out
    assert (
        "Inconclusive scores, which may have lost more than tolerated: acc of arc (quantized, +0.0400 [" in passed.out
    )
    assert "exact_match" not in passed.out.partition("left open")[2], "a loss of .03 of gsm8k is excluded"
    assert "--fail-if-worse must be at least 0" in refused("compare", *sides, "--fail-if-worse", "-0.1")


def test_different_baselines_are_reported(few: tuple[Path, Path], tmp_path: Path) -> None:
    again = Evaluation(FEW)
    again.samples["arc"][3]["acc"] = 0
    again.results["results"]["arc"]["acc,none"] -= 1 / 40
    warning = "warning: two evaluations of base disagree on 1 of 40 documents of arc"
    assert warning in layerwise.compare(*few, again.write(tmp_path / "again")).summary
    both = tmp_path / "base"
    again.write(both, date="2026-01-01T00-00-00.000000")
    Evaluation(FEW).write(both)
    assert warning in layerwise.compare(both, few[1]).summary
    assert "warning" not in layerwise.compare(*few).summary


def test_scores_that_are_no_ratio_of_sums_are_excluded_by_name(tmp_path: Path) -> None:
    tasks = {"wmt": {"bleu": [["a", "b"]] * 20}, "arc": {"acc": [1] * 10 + [0] * 10, "mcc": [1] * 20}}
    first, second = (Evaluation(tasks, name).write(tmp_path / name) for name in ("a", "b"))
    summary = layerwise.compare(first, second).summary
    for name in ("bleu of wmt", "mcc of arc"):
        assert f"{name} is not compared: its score is not a ratio of sums over documents" in summary
    alone = [Evaluation({"wmt": tasks["wmt"]}, name).write(tmp_path / f"{name}-wmt") for name in ("a", "b")]
    with pytest.raises(
        RunError,
        match=r"^the evaluations have no score .*: bleu of wmt is not compared: .* Evaluate all models on",
    ):
        layerwise.compare(*alone)
    nothing = Evaluation({"gsm8k": BASE["gsm8k"]}).write(tmp_path / "gsm8k")
    with pytest.raises(RunError, match=r"^the evaluations have no score .*: gsm8k was not evaluated on arc, wmt; "):
        layerwise.compare(first, nothing)


@pytest.mark.parametrize("wrong", ["score", "direction", "metric"])
def test_a_score_that_disagrees_with_its_documents_is_excluded(
    wrong: str, few: tuple[Path, Path], tmp_path: Path
) -> None:
    for number in (0, 1):
        other = Evaluation((FEW, FEW_OTHERS)[number])
        match wrong:
            case "score":
                other.results["results"]["arc"]["acc,none"] += 0.1
            case "metric":
                del other.results["results"]["arc"]["acc,none"]
            case "direction" if number == 0:
                other.results["higher_is_better"]["arc"] = {}
            case "direction":
                continue
        both = list(few)
        both[number] = other.write(tmp_path / f"{wrong}-{number}")
        result = layerwise.compare(*both)
        assert {row.task for row in result.rows if row.measure == "paired"} == {"wikitext"}
        assert "acc of arc is not compared: its score is not a ratio of sums" in result.summary


def test_one_evaluation_is_rejected(sides: tuple[Path, Path]) -> None:
    assert refused("compare", sides[0]).startswith("a comparison requires two evaluations")


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


def test_python_has_the_rows_the_claims_a_table_and_the_page(runs: tuple[Path, Path], tmp_path: Path) -> None:
    result = layerwise.compare(*runs)
    assert tuple(result.data.runs) == MODELS
    assert {row.variant for row in result.rows if row.measure == "curve"} == set(MODELS)
    own = [row for row in result.claims if row.claim == "Do the middle layers all do the same thing?"]
    assert [(row.variant, row.against, row.metric, row.value) for row in own] == [
        ("small", None, "supported", 1.0),
        ("medium", None, "supported", 1.0),
        (None, "every model", "holds", 2.0),
        (None, "any model", "holds", 2.0),
    ]
    table = result.table("layer")
    assert set(table["measure"]) == {"layer"}
    assert (
        len(table[(table.variant == "small") & (table.strategy == "skip") & (table.task == "all")]) == DEPTHS["small"]
    )
    assert result.plot("layers-0").alternative == "Skip one layer"
    assert result.report(tmp_path / "page.html").is_file()
    assert "small" in result.summary
    assert result.coincidences == []  # these runs store no chance level
    assert "<li>1 published finding was measured" in result._repr_html_()


def test_python_rejects_invalid_arguments_at_once(runs: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(RunError, match="requires at least two runs"):
        layerwise.compare(runs[0])
    with pytest.raises(RunError, match="requires at least two runs"):
        layerwise.compare()
    with pytest.raises(RunError, match="must be given only once, got"):
        layerwise.compare(runs[0], str(runs[0]))
    with pytest.raises(OptionError, match="empty string"):
        layerwise.compare(runs[0], "")
    with pytest.raises(
        RunError, match=r"^fail_if_worse requires evaluations, got runs\. Pass RUN/lm_eval/PLAN of each run\.$"
    ):
        layerwise.compare(*runs, fail_if_worse=0.02)


def test_a_run_without_rows_is_rejected(runs: tuple[Path, Path], tmp_path: Path) -> None:
    empty = write_run(tmp_path / "empty", replace(sweeps("small")[0][1], plans=(), scores=()), "empty")
    assert "has no rows yet" in refused("compare", runs[0], empty)


@pytest.mark.slow
@pytest.mark.parametrize("inputs", ["sides", "runs"])
def test_comparing_imports_nothing_heavy(inputs: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    folders = request.getfixturevalue(inputs)
    assert heavy_imports("compare", *folders, "--output", tmp_path / "page.html") == []
