"""Model cards and models pushed to the hub."""

from pathlib import Path

import pytest

from checkpoint.test_push import FakeHub
from cli.command import refused
from cli.picture_models import save_vit
from conftest import tiny_llama
from layerwise.checkpoint import save
from layerwise.errors import CheckpointError, RunError
from layerwise.plan import Plan
from layerwise.results import Manifest, Run
from layerwise.results.rows import Score
from layerwise.results.training_record import LogEntry, TrainingRecord
from layerwise.runner.reporter import Silent
from layerwise.runner.terminal import Terminal
from layerwise.runner.trained_models import TrainedModels, write_trained_card
from layerwise.stack import load
from layerwise.studies.save.steps import NOT_HELD_OUT, Publication, collect_evidence
from studies.outlines import tiny_training

PLAN = Plan.parse("0 2 3")


def run_of(folder: Path, model: str, scores: list[Score]) -> Path:
    manifest = Manifest(model, None, "f" * 64, "float32", "cpu", "a text", "c", 9, 1_000, 64, ("f",), ("all",), 3)
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
    Score("search", "above_chosen", 0.75, 0.5, 1.0, 0.01, 0.03, 0.1, 9, 1_000, task="report", variant="random"),
    Score("search", "better", 0.05, task="report", variant="random"),
]


def test_a_sweep_provides_the_plan_and_plans_of_equal_cost(tmp_path: Path) -> None:
    table = collect_evidence(run_of(tmp_path / "run", "org/name", SWEEP), PLAN, ["org/name"])
    nats = "nats/token above the original model"
    assert table.rows == (
        ("this plan", "all", nats, "0.5000", "0.4000 to 0.6000", "0.02"),
        ("`1-3`", "all", nats, "0.2500", "0.1500 to 0.3500", "0.02"),
        ("`0-2`", "all", nats, "0.7500", "0.6500 to 0.8500", "0.02"),
    )
    assert table.sentences[0].startswith("Model: name. Text: a text, 9 documents of 1,000 scored tokens; seed 3; ")
    (result,) = table.results
    assert (result.metric_type, result.metric_value, result.dataset_name) == ("delta_nll", 0.5, "a text, all")
    assert result.metric_args == {"confidence_interval_95": [0.4, 0.6], "adjusted_p": 0.02, "documents": 9}
    assert table.sentences[-1] == NOT_HELD_OUT


def test_a_search_provides_the_plan_and_its_controls(tmp_path: Path) -> None:
    table = collect_evidence(run_of(tmp_path / "run", "org/name", [*SWEEP, *SEARCH]), PLAN, ["org/name"])
    assert [row[:4] for row in table.rows] == [
        ("this plan", "report", "nats/token above the original model", "0.5000"),
        ("this plan", "report", "nats/token above the loss on the search text", "0.1250"),
        ("`random`", "report", "nats/token above this model", "0.7500"),
        ("`random`", "report", "share of random plans with a lower loss", "0.0500"),
    ]


@pytest.mark.parametrize(
    ("scores", "model", "reason"),
    [
        (SWEEP[1:2], "org/name", "did not measure the plan 0 2 3 .it measured 0-2.. Pass a search"),
        ([], "org/name", "it measured none"),
        (SWEEP, "org/other", "must be of the saved model, org/name, got org/other"),
    ],
)
def test_evidence_without_the_plan_is_rejected(tmp_path: Path, scores: list[Score], model: str, reason: str) -> None:
    with pytest.raises(RunError, match=reason):
        collect_evidence(run_of(tmp_path / "run", model, scores), PLAN, ["org/name"])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    made = FakeHub()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: made)
    return made


def test_a_saved_model_is_pushed_with_its_card(
    hub: FakeHub, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = str(tmp_path / "base")
    tiny_llama(4).save_pretrained(base)
    save(load(base), PLAN, tmp_path / "m")
    tables = (collect_evidence(run_of(tmp_path / "run", base, SWEEP), PLAN, [base]),)
    with Terminal() as reporter:
        Publication(tables, "org/it", private=True).publish(tmp_path / "m", reporter)
    assert {"config.json", "README.md"} <= hub.files["org/it"]
    card = (tmp_path / "m" / "README.md").read_text()
    assert "\n# it\n" in card
    assert "| this plan | all | nats/token above the original model | 0.5000 | 0.4000 to 0.6000 |" in card
    assert "https://huggingface.co/org/it: pushed, private" in capsys.readouterr().out


def trained(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_text(name)
    TrainingRecord(
        variant="shuffled",
        seed=1,
        base="0a1b",
        data="2c3d",
        data_name="digits | of hands",
        recipe={"variant": "shuffled"},
        steps=1200,
        epochs=2.5,
        examples=9600,
        seconds=12.0,
        best_step=800,
        history=(LogEntry(400, "train", 2.0), LogEntry(800, "validation", 0.75)),
        figures={"step_seconds": 0.01},
    ).write(folder)
    return folder


def test_every_trained_model_is_pushed_once(hub: FakeHub, tmp_path: Path) -> None:
    models = {f"shuffled/{seed}": trained(tmp_path / f"seed-{seed}" / "model") for seed in (0, 1)}
    names = ["org/it-shuffled-0", "org/it-shuffled-1"]
    options = {"push": "org/it", "private": True, "model": "org/vit"}
    for created in (names, []):
        hub.calls.clear()
        TrainedModels.to_push(options, models).publish(Silent())
        assert [call["repo_id"] for kind, call in hub.calls if kind == "create_repo"] == created
        assert all(call["private"] for kind, call in hub.calls if kind == "create_repo")
    assert "README.md" in hub.files[names[1]]
    hub.files["org/other-shuffled-1"] = {"config.json"}
    with pytest.raises(CheckpointError, match="already has a model"):
        TrainedModels.to_push({"push": "org/other"}, models)
    assert TrainedModels.to_push({"push": "org/other", "overwrite": True}, models).due()


def test_a_missing_token_is_an_error_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: None)
    monkeypatch.setattr("layerwise.runner.trainings.train", lambda *_, **__: pytest.fail("trained"))
    command = ("train", "robust", "layershuffle", "--model", str(save_vit(tmp_path / "vit")), "--images", "digits")
    text = refused(*command, "--limit", "20", "--run", str(tmp_path / "run"), "--push", "org/shuffled")
    assert "the hub requires a token" in text
    assert not (tmp_path / "run").exists()
    assert "--push must be ORG/NAME" in refused("train", "elc", "--push", "shuffled")
    assert "--private requires --push" in refused("train", "growth", "--private")
    assert "--private requires --push" in refused(*command, "--private")


def test_the_card_of_a_trained_model_has_its_training_record(tmp_path: Path) -> None:
    text = write_trained_card(trained(tmp_path / "model"), name="shuffled", base="org/vit")
    assert text == (tmp_path / "model" / "README.md").read_text()
    for part in (
        "base_model:\n- org/vit",
        "seed 1",
        "9,600 examples (2.50 epochs)",
        "| 800 | 0.7500 |",
        "digits &#124;",
    ):
        assert part in text, part
    assert "| 400 |" not in text, "a training loss is not a validation loss"
    with pytest.raises(CheckpointError, match="Pass the model of a finished training run"):
        write_trained_card(tmp_path, name="x", base=None)


@pytest.mark.slow
def test_trained_models_are_pushed_at_the_end(hub: FakeHub, tmp_path: Path) -> None:
    model = save_vit(tmp_path / "vit")
    tiny_training(model, tmp_path / "run", "baseline", seeds=1, push="org/shuffled")
    assert list(hub.files) == ["org/shuffled"]
    assert {"config.json", "README.md", "training.json", "model.safetensors"} <= hub.files["org/shuffled"]
