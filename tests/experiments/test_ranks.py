"""What torchrun starts measures together after it has trained together: the rows are those of one process."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from apart import ranks
from cli.conftest import save_llama, save_texts
from cli.picture_models import save_vit
from experiments.ranks_script import perform_all, sweep_of, training_of
from experiments.test_cluster import rows, untimed
from layerwise.experiments.reporter import Silent
from layerwise.experiments.runner import perform
from layerwise.results import Run
from once import made_once

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which two processes have performed everything of the script."""

    def make(root: Path) -> None:
        save_llama(root / "model")
        save_vit(root / "vit")
        save_texts(root / "texts")
        ranks(perform_all, root)

    return made_once(tmp_path_factory, "ranks", make)


def test_a_sweep_of_two_processes_has_the_rows_of_one(folder: Path, tmp_path: Path) -> None:
    perform(sweep_of(folder, tmp_path / "alone"), Silent())
    assert rows(tmp_path / "alone") == rows(folder / "sweep")
    assert rows(tmp_path / "alone")[0]


def test_surveys_after_a_training_of_two_processes_are_those_of_its_models(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(folder / "training", run)
    surveys = sorted(run.glob("*/seed-*/survey-*.npz"))
    assert len(surveys) == 4
    kept = untimed(rows(run)[1])
    for path in surveys:
        path.unlink()
    perform(training_of(folder, run), Silent())
    assert untimed(rows(run)[1]) == kept
    with Run.open(run) as opened:
        assert any("the number of processes was 2" in str(note) for note in opened.store.notes("provenance"))


def test_a_piece_that_fails_elsewhere_fails_here(folder: Path) -> None:
    text = (folder / "failure.txt").read_text()
    assert text.startswith("piece ")
    assert text.endswith("cannot be measured; True")
