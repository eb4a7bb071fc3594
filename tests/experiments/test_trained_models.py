"""Trained models on the hub: refused before the training, pushed with their cards after it, each of them once."""

from pathlib import Path
from typing import Any

import pytest

from checkpoint.test_push import FakeHub
from cli.command import refused
from cli.picture_models import save_vit
from experiments.outlines import tiny_training
from layerwise.errors import CheckpointError
from layerwise.experiments.engines.steps import Outline
from layerwise.experiments.interchange.trained_models import TrainedModels, write_trained_card
from layerwise.experiments.reporter import Silent
from layerwise.experiments.robustness.config import RobustTraining
from layerwise.experiments.runner import perform
from layerwise.results import Manifest
from layerwise.results.training_record import LogEntry, TrainingRecord


def two_models(folder: Path) -> dict[str, Path]:
    return {f"shuffled/{seed}": folder / f"seed-{seed}" / "model" for seed in (0, 1)}


TWO = Outline(Manifest("m", None, "w", "float32", "cpu", "c", "h", 8, 80, 10, (), (), 0), list, models=two_models)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> FakeHub:
    made = FakeHub()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi", lambda: made)
    return made


def model(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (folder / name).write_text(name)
    TrainingRecord(
        arm="shuffled",
        seed=1,
        base="0a1b",
        data="2c3d",
        data_name="digits | of hands",
        recipe={"arm": "shuffled"},
        steps=1200,
        epochs=2.5,
        examples=9600,
        seconds=12.0,
        best_step=800,
        history=(LogEntry(400, "train", 2.0), LogEntry(800, "validation", 0.75)),
        figures={"step_seconds": 0.01},
    ).write(folder)
    return folder


def config(**options: Any) -> RobustTraining:
    return RobustTraining(methods=("layershuffle",), model="demo-vit", **{"push": "org/shuffled", **options})


def test_every_model_goes_to_a_repository_of_its_own_and_goes_there_once(hub: FakeHub, tmp_path: Path) -> None:
    for seed in (0, 1):
        model(tmp_path / f"seed-{seed}" / "model")
    made = TrainedModels.of(config(private=True), TWO, tmp_path)
    made.publish(Silent())
    names = ["org/shuffled-shuffled-0", "org/shuffled-shuffled-1"]
    assert [call["repo_id"] for kind, call in hub.calls if kind == "create_repo"] == names
    assert all(call["private"] for kind, call in hub.calls if kind == "create_repo")
    assert "README.md" in hub.files[names[1]]
    hub.calls.clear()
    again = TrainedModels.of(config(), TWO, tmp_path)
    again.publish(Silent())
    assert hub.calls == []


def test_what_the_hub_would_refuse_is_refused_before_the_training(hub: FakeHub, tmp_path: Path) -> None:
    hub.files["org/shuffled-shuffled-1"] = {"config.json"}
    with pytest.raises(CheckpointError, match="holds a model already"):
        TrainedModels.of(config(), TWO, tmp_path)
    assert TrainedModels.of(config(push=None), TWO, tmp_path) is None
    assert TrainedModels.of(config(overwrite=True), TWO, tmp_path) is not None


def test_without_a_token_nothing_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.utils._headers.get_token", lambda: None)
    monkeypatch.setattr("layerwise.experiments.engines.trainings.train", lambda *_, **__: pytest.fail("trained"))
    command = ("train", "robust", "layershuffle", "--model", str(save_vit(tmp_path / "vit")), "--images", "digits")
    text = refused(*command, "--limit", "20", "--run", str(tmp_path / "run"), "--push", "org/shuffled")
    assert "there is no token" in text
    assert not (tmp_path / "run").exists()


def test_a_name_that_is_no_repository_and_privacy_of_nothing_are_refused() -> None:
    assert "a repository of the hub is ORG/NAME" in refused("train", "elc", "--push", "shuffled")
    assert "--private does nothing here" in refused("train", "growth", "--private")


def test_a_card_says_what_the_record_says_and_no_more(tmp_path: Path) -> None:
    text = write_trained_card(
        model(tmp_path / "model"), name="shuffled", base="org/vit", command="layerwise train", versions={"torch": "2"}
    )
    assert text == (tmp_path / "model" / "README.md").read_text()
    for part in ("base_model:\n- org/vit", "seed 1", "9,600 (2.50 times all)", "| 800 | 0.7500 |", "digits &#124;"):
        assert part in text, part
    assert "| 400 |" not in text, "a loss of training is no validation"
    with pytest.raises(CheckpointError, match="nothing says how it was trained"):
        write_trained_card(tmp_path, name="x", base=None, command="", versions={})


@pytest.mark.slow
def test_a_training_pushes_its_models_at_its_end(hub: FakeHub, tmp_path: Path) -> None:
    model = save_vit(tmp_path / "vit")
    perform(tiny_training(model, tmp_path / "run", "baseline", seeds=1, push="org/shuffled"), Silent())
    assert list(hub.files) == ["org/shuffled"]
    assert {"config.json", "README.md", "training.json", "model.safetensors"} <= hub.files["org/shuffled"]
