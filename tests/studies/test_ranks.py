"""What torchrun starts trains together, and the first process measures: the rows are those of one process."""

import shutil
from pathlib import Path

import pytest

from apart import ranks
from cli.conftest import save_llama, save_texts
from cli.picture_models import save_vit
from layerwise.results import Run, Score
from once import made_once
from studies.outlines import tiny_training
from studies.ranks_script import perform_all
from studies.test_cluster import rows

pytestmark = pytest.mark.slow


def untimed(scores: list[Score]) -> list[Score]:
    words = ("second", "time", "saving", "measured", "bytes", "data_wait")
    return [
        row
        for row in scores
        if not any(word in f"{row.measure} {row.task} {row.metric} {row.condition}" for word in words)
        and row.measure != "run"
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(root: Path) -> None:
        save_llama(root / "model")
        save_vit(root / "vit")
        save_texts(root / "texts")
        ranks(perform_all, root)

    return made_once(tmp_path_factory, "ranks", make)


def test_surveys_after_a_training_of_two_processes_are_those_of_its_models(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder / "training", run)
    surveys = sorted(run.glob("*/seed-*/survey-*.npz"))
    assert len(surveys) == 4
    kept = untimed(rows(run)[1])
    for path in surveys:
        path.unlink()
    tiny_training(folder / "vit", run, "layershuffle", seeds=2)
    assert untimed(rows(run)[1]) == kept
    with Run.open(run) as opened:
        assert any("the number of processes was 2" in str(note) for note in opened.store.notes("provenance"))


def test_a_sweep_of_several_processes_is_refused(folder: Path) -> None:
    refusals = [(folder / f"refusal-{rank}.txt").read_text() for rank in (0, 1)]
    assert refusals == ["sweep runs in one process. Start it without torchrun."] * 2
    assert not (folder / "sweep").exists()
