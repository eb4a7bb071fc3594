"""Fine-tunings that workers make: each once, kept where the rows are made from, and refused where they are not seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.neighbours import copied
from layerwise.data.suites.generated_msgs import Sizes, mixed_signals
from layerwise.errors import RunError
from layerwise.experiments.finetuned_tasks import PREDICTIONS, FineTunedModel, kept_file
from layerwise.experiments.layer_weights_study import arms, tunings
from layerwise.experiments.layer_weights_study.tunings import StudyTuning, tune_elsewhere
from layerwise.experiments.opening import in_words
from layerwise.experiments.reporter import Silent
from layerwise.measure.workers import Spread
from layerwise.train.fine_tuning import FineTuningConfig

TASKS = mixed_signals(arms.TASKS[:2], Sizes(8, 4, 4))
SETTINGS = FineTuningConfig(learning_rates=(3e-4,), epochs=1, frozen=(".scalars",))


class Elsewhere:
    """Two workers that carry pieces out in this process, from plain values; `sees` is what they write to."""

    count = 2

    def __init__(self, folder: Path) -> None:
        self.folder, self.pieces = folder, list[Any]()

    def map(self, opens: str, shared: Any, pieces: Any, **more: Any) -> Any:
        for number, piece in enumerate(pieces):
            self.pieces.append(copied(piece))
            StudyTuning.of(copied(piece), TASKS).carry_out(self.folder, "cpu", Silent())
            yield number, None


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fine-tunings that answer nothing, and are kept as others are."""

    def fine_tuned(model: Any, task: Any, settings: Any, seed: int, *, keep: Path, **more: Any) -> None:
        path = kept_file(keep, model, task, settings, seed, in_words("cpu", "float32"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")

    monkeypatch.setattr(tunings, "fine_tuned", fine_tuned)


def every(folder: Path) -> list[StudyTuning]:
    models = [FineTunedModel("elc", seed, folder / f"{seed}") for seed in range(2)]
    return [StudyTuning(model, task, SETTINGS) for model in models for task in TASKS]


def test_what_is_kept_is_not_made_again(tmp_path: Path, quick: None) -> None:
    workers = Elsewhere(tmp_path)
    for _ in range(2):
        tune_elsewhere(iter(every(tmp_path)), tmp_path, "cpu", Spread(workers), Silent())
        assert len(workers.pieces) == 4
    assert len(list((tmp_path / PREDICTIONS).rglob("*.json"))) == 4
    assert [StudyTuning.of(piece, TASKS) for piece in workers.pieces] == [
        replace(each, model=replace(each.model, location=str(each.model.location))) for each in every(tmp_path)
    ]


def test_what_is_not_seen_here_is_refused(tmp_path: Path, quick: None) -> None:
    with pytest.raises(RunError, match="fine-tuning of elc/0 was finished by a worker, and is not in the run folder"):
        tune_elsewhere(iter(every(tmp_path)), tmp_path, "cpu", Spread(Elsewhere(tmp_path / "other")), Silent())


def test_in_one_process_nothing_is_made_ahead(tmp_path: Path) -> None:
    tune_elsewhere(iter(every(tmp_path)), tmp_path, "cpu", Spread(), Silent())
    assert not list(tmp_path.iterdir())
