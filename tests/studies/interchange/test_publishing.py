"""A card says of a plan what a run measured, and nothing else; a saved folder is pushed with it."""

from pathlib import Path

import pytest

from conftest import tiny_llama
from layerwise.checkpoint import save
from layerwise.errors import RunError
from layerwise.plan import Plan
from layerwise.results import Manifest, Run
from layerwise.results.rows import Score
from layerwise.runner.terminal import Terminal
from layerwise.runner.trained_models import CHOSEN_THERE, Publication, evidence
from layerwise.stack import load

PLAN = Plan.parse("0 2 3")


def run_of(folder: Path, model: str, scores: list[Score]) -> Path:
    command = ("/usr/bin/layerwise", "sweep", "two words")
    manifest = Manifest(
        model, None, "f" * 64, "float32", "cpu", "a text", "c", 9, 1_000, 64, ("f",), ("all",), 3, command=command
    )
    with Run.create(folder, manifest) as run:
        for measure in {score.measure for score in scores}:
            run.store.replace_scores(measure, [score for score in scores if score.measure == measure])
    return folder


def effect(plan: str, value: float, metric: str = "delta_nll") -> Score:
    return Score(
        "effect",
        metric,
        value,
        value - 0.1,
        value + 0.1,
        0.01,
        p_adjusted=0.02,
        mde=0.05,
        documents=9,
        tokens=1_000,
        plan=plan,
    )


SWEEP = [effect("0 2 3", 0.5), effect("0-2", 0.75), effect("0-1", 2.0), effect("1-3", 0.25), effect("0-2", 1, "nll")]
SEARCH = [
    Score("search", "delta_nll", 0.5, 0.4, 0.6, 0.01, 0.02, 0.05, 9, 1_000, task="report", plan="0 2 3"),
    Score("search", "gap", 0.125, 0.0, 0.25, task="report", plan="0 2 3"),
    Score("search", "delta_nll", 0.3, 0.2, 0.4, task="search", plan="0-2"),
    Score("search", "above_chosen", 0.75, 0.5, 1.0, 0.01, 0.03, 0.1, 9, 1_000, task="report", arm="random"),
    Score("search", "better", 0.05, task="report", arm="random"),
]


def test_a_sweep_gives_the_row_of_the_plan_and_those_of_plans_that_cost_as_much(tmp_path: Path) -> None:
    table = evidence(run_of(tmp_path / "run", "org/name", SWEEP), PLAN, ["org/name"])
    nats = "nats per token above the model as trained"
    assert table.rows == (
        ("this plan", "all", nats, "0.5000", "0.4000 to 0.6000", "0.02", "0.0500", "9"),
        ("`1-3`", "all", nats, "0.2500", "0.1500 to 0.3500", "0.02", "0.0500", "9"),
        ("`0-2`", "all", nats, "0.7500", "0.6500 to 0.8500", "0.02", "0.0500", "9"),
    )
    assert table.sentences[0].startswith("Model: name; its weights and configuration have SHA-256 ffffffffffffffff. ")
    (result,) = table.results
    assert (result.metric_type, result.metric_value, result.dataset_name) == ("delta_nll", 0.5, "a text, all")
    assert result.metric_args == {"confidence_interval_95": [0.4, 0.6], "adjusted_p": 0.02, "documents": 9}
    assert table.sentences[-2:] == ("Command: `layerwise sweep 'two words'`.", CHOSEN_THERE)


def test_a_search_gives_what_it_confirmed_and_its_controls(tmp_path: Path) -> None:
    table = evidence(run_of(tmp_path / "run", "org/name", [*SWEEP, *SEARCH]), PLAN, ["org/name"])
    assert [row[:4] for row in table.rows] == [
        ("this plan", "report", "nats per token above the model as trained", "0.5000"),
        ("this plan", "report", "nats per token above what the search saw", "0.1250"),
        ("`random`", "report", "nats per token above this model", "0.7500"),
        ("`random`", "report", "share of the random sets that lose less", "0.0500"),
    ]


@pytest.mark.parametrize(
    ("scores", "model", "reason"),
    [
        (SWEEP[1:2], "org/name", "says nothing of the plan 0 2 3: it measured 0-2; give the run"),
        ([], "org/name", "it has no rows"),
        (SWEEP, "org/other", "is about org/other, and the plan about org/name"),
    ],
)
def test_a_claim_without_its_row_is_refused(tmp_path: Path, scores: list[Score], model: str, reason: str) -> None:
    with pytest.raises(RunError, match=reason):
        evidence(run_of(tmp_path / "run", model, scores), PLAN, ["org/name"])


def test_a_saved_model_is_pushed_with_its_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_llama(4).save_pretrained(tmp_path / "base")
    save(load(tmp_path / "base"), PLAN, tmp_path / "m")
    tables = (evidence(run_of(tmp_path / "run", str(tmp_path / "base"), SWEEP), PLAN, [str(tmp_path / "base")]),)
    pushed: list[tuple[Path, str, bool, str]] = []

    def push(folder: Path, name: str, *, private: bool, overwrite: bool) -> str:
        pushed.append((folder, name, private, (folder / "README.md").read_text()))
        return f"https://huggingface.co/{name}"

    monkeypatch.setattr("layerwise.checkpoint.push.push", push)
    with Terminal() as reporter:
        Publication(tables, "org/it", private=True).publish(tmp_path / "m", reporter)
    ((folder, name, private, card),) = pushed
    assert (folder, name, private) == (tmp_path / "m", "org/it", True)
    assert "\n# it\n" in card
    assert "| this plan | all | nats per token above the model as trained | 0.5000 | 0.4000 to 0.6000 |" in card
    assert "https://huggingface.co/org/it: pushed, private" in capsys.readouterr().out
