"""Rows of attribution: what a model's shares are worth, shuffled labels, and no second fine-tuning."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from layerwise.data.suites.generated_msgs import Sizes, mixed_signals
from layerwise.experiments import finetuned_tasks
from layerwise.experiments.finetuned_tasks import FineTunedModel
from layerwise.experiments.layer_weights_study import tunings
from layerwise.experiments.layer_weights_study.tunings import ATTRIBUTION, attribution_rows, marked, shuffled, with_arms
from layerwise.measure.gradients.attribution import FeatureShares
from layerwise.results import Run
from layerwise.results.manifest import Manifest
from layerwise.train.fine_tuning import FineTuningConfig, FineTuningResult

(TASK,) = mixed_signals(["ambiguous main_verb_relative_position"], Sizes(20, 10, 20))
SHARES = FeatureShares((0.5, 0.3), (0.1, 0.3), (0.2, 0.2), (0.1, 0.1), 0.004)


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def taught(location: Path, task: Any, *_: Any, inspect_model: Any, **__: Any) -> FineTuningResult:
        found.append(task.name)
        inspect_model(None, None)
        labels = tuple(row.label for row in task.test)
        return FineTuningResult(labels, labels, 0.5, 1e-3, 1, 0.1)

    monkeypatch.setattr(finetuned_tasks, "fine_tune", taught)
    monkeypatch.setattr(tunings, "feature_shares", lambda *_: SHARES)
    return found


def test_rows_of_models_and_arms_and_nothing_is_taught_twice(tmp_path: Path, tuned: list[str]) -> None:
    manifest = Manifest("models", None, "w1", "float32", "cpu", "texts", "c1", 3, 90, 64, ("elc",), ("elc",), 7)
    models = [FineTunedModel("elc", seed, tmp_path / name) for seed, name in enumerate("ab")]
    with Run.create(tmp_path / "run", manifest) as run:
        rows = with_arms(attribution_rows(models, TASK, FineTuningConfig(), run.folder, device="cpu"))
        assert tuned == [TASK.name, f"{TASK.name} shuffled"] * 2
        tuned.clear()
        assert with_arms(attribution_rows(models, TASK, FineTuningConfig(), run.folder, device="cpu")) == rows
        assert tuned == []
        for kept in (run.folder / ATTRIBUTION).rglob("*.json"):
            kept.unlink()
        assert with_arms(attribution_rows(models, TASK, FineTuningConfig(), run.folder, device="cpu")) == rows
    values = {(row.arm, row.seed, row.metric, row.against): row.value for row in rows}
    for seed in (0, None):
        assert values["elc", seed, "linguistic", None] == pytest.approx(0.4)
        assert values["elc", seed, "surface", "tokens"] == pytest.approx(0.1)
        assert values["elc", seed, "preference", None] == pytest.approx(0.4 - 0.2 - 0.2 + 0.1)
        assert values["elc", seed, "preference", "shuffled"] == values["elc", seed, "preference", None]
        assert values["elc", seed, "gap", None] == 0.004
    assert {row.task for row in rows} == {TASK.name}


def test_shuffled_labels_are_dealt_out_anew_and_the_test_stays() -> None:
    other = shuffled(TASK)
    assert other.test == TASK.test
    assert other.train != TASK.train
    assert [row.text for row in other.train] == [row.text for row in TASK.train]
    assert Counter(row.label for row in other.train) == Counter(row.label for row in TASK.train)
    assert marked(other, 3) == marked(TASK, 3)
    assert len(marked(TASK, 3)[0].surface) == 2
