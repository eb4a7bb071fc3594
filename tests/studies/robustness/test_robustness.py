"""`layerwise robustness` of a run, of one model and of the demo, and its errors."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import AutoModelForCausalLM

import layerwise as library
from apart import Ended
from cli.command import layerwise, refused
from cli.conftest import save_texts
from cli.picture_models import DEPTH, save_vit
from conftest import Flat
from layerwise.measure.activations import attention_by_position, by_position, embedding
from layerwise.results import Run, Score
from layerwise.runner.reporter import Silent
from layerwise.studies.robustness import steps as training
from layerwise.train.recipe import Settings

FEW = ("--orders", "3", "--draws", "2")
DIGITS = ("--images", "digits", "--limit", "20")
ONCE = ("--epochs", "1", "--batch-size")


pytestmark = pytest.mark.usefixtures("flat")


@pytest.fixture(scope="module")
def trained(vit: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "trained"
    methods = "layershuffle-predict,layershuffle-position"
    ended = layerwise("train", "robust", methods, "--model", vit, *DIGITS, *ONCE, "10", "--seeds", "2", "--run", folder)
    assert ended.code == 0, ended.err
    return folder


@pytest.fixture(scope="module")
def one(vit: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    folder = tmp_path_factory.mktemp("one") / "run"
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, "umap", SimpleNamespace(UMAP=Flat, __spec__=SimpleNamespace()))
        return folder, layerwise("robustness", vit, *DIGITS, *FEW, "--run", folder)


def scores(folder: Path) -> list[Score]:
    with Run.open(folder) as run:
        return run.store.scores()


def stamps(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("survey-*.npz")}


@pytest.mark.slow
def test_all_models_of_a_run_are_surveyed(trained: Path) -> None:
    ended = layerwise("robustness", trained, *FEW)
    assert ended.code == 0, ended.err
    assert "Loading weights" not in ended.err
    variants = ["baseline", "layershuffle-position", "layershuffle-predict"]
    assert sorted(line.split()[0] for line in ended.out.splitlines()[2:5]) == variants
    found = scores(trained)
    assert {row.measure for row in found} >= {
        *("robustness", "orders", "identity", "position", "branches", "contribution", "embedding"),
        *("merging", "training"),
    }
    even = {row.kept for row in found if (row.measure, row.strategy, row.order) == ("robustness", "even", "sequential")}
    assert even == set(range(1, DEPTH))
    assert {row.variant for row in found if row.measure == "branches"} == set(variants)
    assert (trained / "report.html").read_text().endswith("</html>\n")
    before = stamps(trained)
    again = layerwise("robustness", trained, *FEW, "--quiet")
    assert (again.code, again.out, again.err) == (0, ended.out, "")
    assert stamps(trained) == before
    assert scores(trained) == found


@pytest.mark.slow
def test_a_trained_model_is_labeled_by_its_method(trained: Path, tmp_path: Path) -> None:
    path = trained / "layershuffle-predict" / "seed-0" / "model"
    ended = layerwise("robustness", path, *DIGITS, *FEW, "--run", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[2].startswith("layershuffle-predict")
    assert [row for row in scores(tmp_path / "run") if row.measure == "position"]


@pytest.mark.slow
def test_overwrite_surveys_another_model_again(one: tuple[Path, Ended], tmp_path: Path) -> None:
    other, run = save_vit(tmp_path / "vit", depth=4), shutil.copytree(one[0], tmp_path / "run")
    before = stamps(run)
    assert "--overwrite" in refused("robustness", other, *DIGITS, *FEW, "--run", run)
    assert stamps(run) == before
    assert layerwise("robustness", other, *DIGITS, *FEW, "--run", run, "--overwrite").code == 0
    assert stamps(run)
    assert not set(stamps(run).values()) & set(before.values())
    depth = next(row for row in scores(run) if row.metric == "depth")
    assert depth.value == 4


@pytest.mark.slow
def test_an_opened_model_has_the_same_rows_as_its_folder(one: tuple[Path, Ended], vit: Path, tmp_path: Path) -> None:
    options = {"images": "digits", "limit": 20, "orders": 3, "draws": 2, "reporter": Silent()}
    opened = list(library.robustness(library.load(vit), run=tmp_path / "run", **options).table("robustness")["value"])
    named = [row.value for row in scores(one[0]) if row.measure == "robustness"]
    assert len(opened) > 20
    assert opened == named


@pytest.mark.slow
def test_language_models_are_trained_and_surveyed(model: Path, tmp_path: Path) -> None:
    text = ("--text", save_texts(tmp_path / "texts"), "--max-length", "18")
    run = tmp_path / "run"
    short = (*text, *ONCE, "8", "--seeds", "1")
    trained = layerwise("train", "robust", "layershuffle", "--model", model, *short, "--run", run)
    assert trained.code == 0, trained.err
    assert "nats/token, lower is better" in trained.out.splitlines()[0]
    path = run / "layershuffle" / "seed-0" / "model"
    assert AutoModelForCausalLM.from_pretrained(path).config.num_hidden_layers == 4
    assert (path / "tokenizer.json").is_file()
    ended = layerwise("robustness", run, *FEW)
    assert ended.code == 0, ended.err
    assert "nats/token, lower is better" in ended.out.splitlines()[0]
    found = scores(run)
    assert not [row for row in found if row.metric == "accuracy_top5"]
    assert {(row.metric, row.order) for row in found if row.measure == "contribution"} >= {("nll_added", "random")}
    assert ("layershuffle", "random", "baseline") in {
        (row.variant, row.order, row.against) for row in found if row.metric == "nll_above"
    }


@pytest.mark.slow
def test_the_demo_trains_its_models_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "DEFAULTS_BY_MODEL", {"demo-vit": Settings(epochs=1, batch_size=20)})
    monkeypatch.setattr(training, "COMPARED", ("baseline",))
    monkeypatch.setattr(training, "REDUCED", (3,))
    monkeypatch.setattr(by_position, "UNITS", 1)
    for each in (embedding, attention_by_position):
        monkeypatch.setattr(each, "BATCHES", 1)
    ended = layerwise("robustness", "demo-vit", "--limit", "20", *FEW, "--seeds", "1", "--run", tmp_path / "run")
    assert ended.code == 0, ended.err
    assert "2 training methods, 1 seed each" in ended.err
    rows = [row for row in scores(tmp_path / "run") if (row.measure, row.variant) == ("robustness", "retrained")]
    assert {(row.kept, row.strategy, row.order) for row in rows} == {(3, "even", "sequential"), (3, "even", "random")}


def test_a_different_kind_of_run_is_rejected(one: tuple[Path, Ended], tmp_path: Path) -> None:
    swept = tmp_path / "swept"
    with Run.open(one[0]) as run:
        Run.create(swept, replace(run.manifest, families=("leave_one_out",))).close()
    message = refused("robustness", swept, *DIGITS)
    assert "must be a run of `layerwise train robust`" in message


@pytest.mark.slow
def test_invalid_options_for_a_run_are_rejected(trained: Path, tmp_path: Path) -> None:
    message = refused("robustness", trained, "--limit", "30", *FEW)
    assert "may have seen the test examples" in message
    assert "--limit, --select-on and --seed with which it was trained" in message
    message = refused("robustness", trained, "--run", tmp_path / "run")
    assert "--run must not be given for a run" in message
    unfinished = shutil.copytree(trained, tmp_path / "unfinished")
    for record in unfinished.rglob("training.json"):
        record.unlink()
    assert "has no finished model yet" in refused("robustness", unfinished, *DIGITS)
