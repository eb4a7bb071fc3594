"""`layerwise robustness` as a user meets it: of a run, of one model, of the demo; and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import layerwise as library
from cli.command import layerwise, refused
from cli.conftest import save_texts
from cli.picture_models import DEPTH, save_images, save_vit
from layerwise.experiments.reporter import Silent
from layerwise.experiments.robustness import run as training
from layerwise.results import Run, Score
from layerwise.train.recipe import Settings

FEW = ("--orders", "3", "--draws", "2")
DIGITS = ("--images", "digits", "--limit", "20")


pytestmark = pytest.mark.usefixtures("flat")


@pytest.fixture(scope="module")
def vit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vit(tmp_path_factory.mktemp("models") / "vit")


@pytest.fixture(scope="module")
def trained(vit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three methods, two of which add to the model."""
    folder = tmp_path_factory.mktemp("runs") / "trained"
    methods = "layershuffle-predict,layershuffle-position"
    ended = layerwise(
        "train", "robust", methods, "--model", vit, *DIGITS, "--epochs", "1", "--batch-size", "10",
        "--seeds", "2", "--run", folder,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    return folder


def scores(folder: Path) -> list[Score]:
    with Run.open(folder) as run:
        return run.store.scores()


def stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("survey-*.npz")}


@pytest.mark.slow
def test_a_run_is_asked_as_a_whole(trained: Path) -> None:
    """Every question has its rows, and asking again computes nothing and says the same."""
    ended = layerwise("robustness", trained, *FEW)
    assert ended.code == 0, ended.err
    assert "Loading weights" not in ended.err
    arms = ["baseline", "layershuffle-position", "layershuffle-predict"]
    assert sorted(line.split()[0] for line in ended.out.splitlines()[2:5]) == arms
    found = scores(trained)
    assert {row.measure for row in found} >= {
        "robustness", "orders", "identity", "position", "branches", "contribution", "embedding", "merging", "training",
    }  # fmt: skip
    even = {
        row.amount for row in found if (row.measure, row.part, row.condition) == ("robustness", "even", "sequential")
    }
    assert even == set(range(1, DEPTH))
    assert {row.arm for row in found if row.measure == "branches"} == set(arms)
    assert (trained / "report.html").read_text().endswith("</html>\n")
    before = stamps(trained)
    again = layerwise("robustness", trained, *FEW, "--quiet")
    assert (again.code, again.out, again.err) == (0, ended.out, "")
    assert stamps(trained) == before
    assert scores(trained) == found


@pytest.mark.slow
def test_fresh_asks_all_of_it_anew(trained: Path) -> None:
    assert layerwise("robustness", trained, *FEW).code == 0
    models = {path: path.stat().st_mtime_ns for path in trained.rglob("*.safetensors")}
    before = stamps(trained)
    assert layerwise("robustness", trained, *FEW, "--overwrite").code == 0
    after = stamps(trained)
    assert after
    assert not set(after.values()) & set(before.values())
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*.safetensors")} == models


def test_one_model_has_a_run_of_its_own(vit: Path, tmp_path: Path) -> None:
    ended = layerwise("robustness", vit, *DIGITS, *FEW, "--run", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[2].startswith("vit ")
    found = scores(tmp_path / "run")
    models = {(row.arm, row.seed) for row in found if row.measure == "robustness"}
    assert models == {(None, None), ("vit", None), ("vit", 0)}


@pytest.mark.slow
def test_a_trained_model_alone_goes_by_its_method(trained: Path, tmp_path: Path) -> None:
    path = trained / "layershuffle-predict" / "seed-1" / "model"
    ended = layerwise("robustness", path, *DIGITS, *FEW, "--run", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[2].startswith("layershuffle-predict")
    assert [row for row in scores(tmp_path / "run") if row.measure == "position"]


@pytest.mark.slow
def test_fresh_does_not_answer_for_another_model(vit: Path, tmp_path: Path) -> None:
    """The surveys of the model that was asked before lie in the same folder."""
    other = save_vit(tmp_path / "vit", depth=4)
    assert layerwise("robustness", vit, *DIGITS, *FEW, "--run", tmp_path / "run").code == 0
    assert "--overwrite" in refused("robustness", other, *DIGITS, *FEW, "--run", tmp_path / "run")
    assert layerwise("robustness", other, *DIGITS, *FEW, "--run", tmp_path / "run", "--overwrite").code == 0
    depth = next(row for row in scores(tmp_path / "run") if row.metric == "depth")
    assert depth.value == 4


def test_the_cost_is_printed_and_nothing_is_computed(vit: Path, tmp_path: Path) -> None:
    ended = layerwise("robustness", vit, *DIGITS, *FEW, "--run", tmp_path / "run", "--dry-run")
    assert ended.code == 0, ended.err
    assert "each model is evaluated under 26 conditions and 3 fixed orders on 20 examples" in ended.out
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_opened_model_and_its_folder_have_the_same_rows(vit: Path, tmp_path: Path) -> None:
    options = {"images": "digits", "limit": 20, "orders": 3, "draws": 2, "reporter": Silent()}
    opened = library.robustness(library.load(vit), run=tmp_path / "opened", **options)
    named = library.robustness(vit, run=tmp_path / "named", **options)
    tables = [result.table("robustness") for result in (opened, named)]
    assert len(tables[0]) > 20
    assert list(tables[0]["value"]) == list(tables[1]["value"])


@pytest.mark.slow
def test_a_language_model_leads_with_its_loss(model: Path, tmp_path: Path) -> None:
    texts = save_texts(tmp_path / "texts")
    ended = layerwise("robustness", model, "--text", texts, "--max-length", "18", *FEW, "--run", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("nats per token, lower is better")
    assert not [row for row in scores(tmp_path / "run") if row.metric == "accuracy_top5"]


@pytest.mark.slow
def test_a_run_of_language_models(model: Path, tmp_path: Path) -> None:
    text = ("--text", save_texts(tmp_path / "texts"), "--max-length", "18")
    run = tmp_path / "run"
    trained = layerwise(
        "train", "robust", "layershuffle", "--model", model, *text, "--epochs", "1", "--batch-size", "8",
        "--seeds", "1", "--run", run,
    )  # fmt: skip
    assert trained.code == 0, trained.err
    ended = layerwise("robustness", run, *FEW)
    assert ended.code == 0, ended.err
    assert ended.out.startswith("nats per token, lower is better")
    found = scores(run)
    assert {(row.metric, row.condition) for row in found if row.measure == "contribution"} >= {("nll_added", "random")}
    assert ("layershuffle", "random", "baseline") in {
        (row.arm, row.condition, row.against) for row in found if row.metric == "nll_above"
    }


@pytest.mark.slow
def test_the_demo_trains_every_method_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run of `robustness demo-vit` on few images, for one epoch, of few methods."""
    monkeypatch.setattr(training, "DEFAULTS_BY_MODEL", {"demo-vit": Settings(epochs=1, batch_size=20)})
    monkeypatch.setattr(training, "COMPARED", ("baseline",))
    monkeypatch.setattr(training, "REDUCED", (3,))
    ended = layerwise("robustness", "demo-vit", "--limit", "20", *FEW, "--seeds", "1", "--run", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert "2 methods of training, 1 seed each" in ended.err
    rows = [row for row in scores(tmp_path / "run") if (row.measure, row.arm) == ("robustness", "retrained")]
    assert {(row.amount, row.part, row.condition) for row in rows} == {(3, "even", "sequential"), (3, "even", "random")}


# What it refuses


def test_a_run_of_another_kind(model: Path, texts: Path, tmp_path: Path) -> None:
    swept = layerwise(
        "sweep", model, "--text", texts, "--run", tmp_path / "run", "--families", "leave_one_out", "--no-similarity"
    )  # fmt: skip
    assert swept.code == 0
    message = refused("robustness", tmp_path / "run", *DIGITS)
    assert "is a run of another kind" in message
    assert "give a folder that `layerwise train robust` has written" in message


def test_a_run_without_a_finished_model(vit: Path, tmp_path: Path) -> None:
    command = (
        "train",
        "robust",
        "baseline",
        "--model",
        vit,
        *DIGITS,
        "--epochs",
        "1",
        "--batch-size",
        "10",
        "--seeds",
        "1",
    )
    assert layerwise(*command, "--run", tmp_path / "run").code == 0
    (tmp_path / "run/baseline/seed-0/model/training.json").unlink()
    assert "holds no finished model yet" in refused("robustness", tmp_path / "run", *DIGITS)


@pytest.mark.slow
def test_other_splits_than_those_of_the_training(trained: Path, tmp_path: Path) -> None:
    message = refused("robustness", trained, "--limit", "30", *FEW)
    assert "test examples may have been learned from" in message
    assert "--limit, --select-on and --seed of its training" in message


@pytest.mark.slow
def test_a_folder_for_the_rows_of_a_run(trained: Path, tmp_path: Path) -> None:
    message = refused("robustness", trained, "--run", tmp_path / "run")
    assert f"leave out --run {tmp_path / 'run'}" in message


def test_labels_that_do_not_fit_the_head(vit: Path, tmp_path: Path) -> None:
    images = save_images(tmp_path / "shapes")
    message = refused("robustness", vit, "--images", images, "--run", tmp_path / "run")
    assert "has 2 classes (circle, square), but the model's head has 10 outputs" in message
    assert not (tmp_path / "run").exists()


def test_the_wrong_kind_of_data(vit: Path, model: Path, texts: Path) -> None:
    assert "takes images: give --images" in refused("robustness", vit, "--text", texts)
    assert "takes text: give --text" in refused("robustness", model, "--images", "digits")
    assert "images are needed: --images" in refused("robustness", vit)
    assert "a text is needed: --text" in refused("robustness", model)


def test_a_model_that_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert "there is no folder ./tyni" in refused("robustness", "./tyni")
