"""`layerwise train growth-study` as a user meets it: what it answers, that it resumes, and what it refuses."""

import shutil
from pathlib import Path

import pytest

from cli.command import Ended, layerwise, refused
from experiments.growth.tiny_inputs import SHORT, record
from layerwise.experiments.growth.schedule_file import read_schedule
from layerwise.experiments.growth_study import run as study_run
from layerwise.experiments.reporter import Silent
from layerwise.experiments.verbs import train_growth_study
from layerwise.plan.schedule.allocation import Importance
from layerwise.results import Run
from layerwise.results.training_record import FILE


@pytest.mark.slow
def test_python_returns_the_rows_of_two_arms_and_of_the_headline(config: Path, texts: Path, tmp_path: Path) -> None:
    result = train_growth_study(
        str(config),
        texts,
        arms=("published",),
        learning_rates=(1e-3,),
        warmups=(0.2,),
        seeds=2,
        steps=20,
        batch_size=4,
        max_length=16,
        evals=2,
        device="cpu",
        run=tmp_path / "run",
        reporter=Silent(),
    )
    rows = {(row.arm, row.amount, row.condition, row.metric) for row in result.rows if row.measure == "growth"}
    assert ("published", None, "flops", "difference") in rows
    for cost in ("flops", "seconds"):
        metrics = {metric for *about, metric in rows if about == ["published", None, cost]}
        assert len(metrics & {"saving", "saving_at_most", "saving_at_least"}) == 1, cost
    read_off = result.table("growth").query("metric == 'read_off'")
    assert set(read_off["value"]) == {2.0}, "its own length and the smaller budget"
    assert ("published", None, "tokens", "time_saved") in rows
    assert ("published", 0.634, "budget", "loss_ratio") in rows
    assert record(tmp_path / "run", "published@0.634").steps == 13
    rates = result.table("rates")
    assert set(rates["arm"]) == {"uniform", "published"}
    assert set(rates.query("condition == 'warmup' and metric == 'nll'")["amount"]) == {0.05, 0.2}
    assert {("uniform", None), ("published", None), ("published", 0.634)} <= {
        (row.arm, row.amount) for row in result.rows if row.measure == "epochs"
    }
    assert "Schedules compared" in (tmp_path / "run" / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--set", "shorter=0.5", "--arms", "ramp"), "--set shorter does nothing here"),
        (("--steps", "5", "--epochs", "1"), "give one of them"),
        (("--epochs", "1.5"), "the longest training, would read the text"),
    ],
)
def test_a_study_that_cannot_be_is_refused_before_there_is_a_folder(
    config: Path, texts: Path, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    run = tmp_path / "run"
    assert said in refused(
        "train", "growth-study", "--model", config, "--text", texts, "--max-length", "16", "--run", run, *options
    )
    assert not run.exists()


def test_a_study_is_not_for_several_processes(config: Path, texts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "start it without torchrun" in refused(
        "train", "growth-study", "--model", config, "--text", texts, *SHORT[2:]
    )


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    effects = (0.0, 0.1, 0.4, 0.2)
    found = tuple(Importance(effect, effect - 0.001, effect + 0.001) for effect in effects)
    monkeypatch.setattr(study_run, "measured_importance", lambda *args, **options: found)


def study(model: Path, text: Path, run: Path, *options: object) -> Ended:
    given = ("--model", model, "--text", text, "--run", run, *SHORT[2:], *map(str, options))
    ended = layerwise("train", "growth-study", *given)
    assert ended.code == 0, ended.err
    return ended


def swept(seeds: int) -> tuple[object, ...]:
    rates = ("--learning-rates", "1e-3,4e-3", "--set", "warmups=0.05", "--set", f"sweep_seeds={seeds}")
    return (*rates, "--seeds", seeds)


@pytest.mark.nightly
def test_a_trained_model_is_taken_to_a_new_domain_without_stacking(
    checkpoint: Path, texts: Path, tmp_path: Path, planted: None
) -> None:
    folder = tmp_path / "study"
    arms = ("--arms", "importance,permuted,stacking")
    ended = study(checkpoint, texts, folder, *swept(1), "--steps", 16, *arms)
    assert "stacking is left out: its layers would grow in over weights that are trained already" in ended.err
    assert "from its own weights" in ended.err
    assert not (folder / "stacking").exists()
    assert read_schedule(folder / "importance.yaml").phases[-1].trains == (1, 2, 3)
    settings = [record(folder, arm).recipe["settings"] for arm in ("importance", "permuted")]
    assert settings[0]["learning_rate"] == settings[1]["learning_rate"]
    with Run.open(folder) as run:
        differences = run.store.scores("growth", metric="difference")
        assert any("not counted as a cost of the schedule" in note.text for note in run.store.notes("growth"))
    assert {("importance", "permuted", "flops"), ("permuted", "uniform", "flops")} <= {
        (row.arm, row.against, row.condition) for row in differences
    }


@pytest.mark.slow
def test_a_study_without_importance_goes_on_without_its_controls(config: Path, texts: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    arms = ("--arms", "importance,permuted,ramp")
    ended = study(config, texts, folder, "--steps", 8, "--learning-rates", "1e-6", "--seeds", 1, *arms)
    assert "importance and its controls are left out: no layer has an effect" in ended.err
    assert not (folder / "importance").exists()
    assert (folder / "ramp" / "seed-0" / "model" / FILE).is_file()


@pytest.mark.slow
def test_importance_is_measured_again_where_another_rate_is_the_best(
    config: Path, texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tuple(Importance(effect, effect - 0.001, effect + 0.001) for effect in (0.0, 0.1, 0.4, 0.2))
    asked: list[object] = []
    monkeypatch.setattr(study_run, "measured_importance", lambda *args, **options: asked.append(args) or found)
    folder = tmp_path / "study"
    once = (config, texts, folder, "--steps", 16, "--seeds", 1, "--arms", "importance", "--learning-rates")
    for rate, times in (("1e-3", 1), ("1e-3", 1), ("4e-3", 2)):
        if times == 2:  # as a study that was stopped before its arms
            for path in filter(Path.is_dir, (*folder.glob("importance*"), *folder.glob("uniform*"))):
                shutil.rmtree(path)
        study(*once, rate)
        assert len(asked) == times
    with Run.open(folder) as run:
        assert [row.value for row in run.store.scores("importance", metric="learning_rate")] == [4e-3]
