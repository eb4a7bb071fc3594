"""`layerwise train robust`: its models, resumption and errors."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageClassification

import layerwise as library
import layerwise.train
from apart import Ended
from cli.command import layerwise, refused
from cli.picture_models import save_images, save_vit
from layerwise.results import Run
from layerwise.results.training_record import TrainingRecord
from layerwise.runner.opening import default_folder
from layerwise.runner.reporter import Silent
from layerwise.stack import weight_hash
from layerwise.studies.robustness.training_verb import train_robust
from studies.describing import describe_call

SHORT = ("--limit", "20", "--epochs", "1", "--batch-size", "10")
DIGITS = ("--images", "digits", *SHORT)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_images(tmp_path_factory.mktemp("images") / "shapes")


@pytest.fixture(scope="module")
def trained(vit: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    folder = tmp_path_factory.mktemp("runs") / "run"
    ended = layerwise("train", "robust", "layershuffle", "--model", vit, *DIGITS, "--seeds", "2", "--run", folder)
    assert ended.code == 0, ended.err
    return folder, ended


def stamps(folder: Path) -> dict[str, int]:
    found = [*folder.glob("*/seed-*/model/*"), *folder.glob("*/seed-*/survey-*.npz")]
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in found}


def test_models_are_written_as_checkpoints_with_their_records(trained: tuple[Path, Ended]) -> None:
    folder, _ = trained
    assert (folder / "report.html").read_text().endswith("</html>\n")
    assert not list(folder.glob("*/seed-*/checkpoint-*"))
    for variant in ("baseline", "layershuffle"):
        for seed in range(2):
            path = folder / variant / f"seed-{seed}" / "model"
            with torch.inference_mode():
                logits = AutoModelForImageClassification.from_pretrained(path)(torch.zeros(1, 1, 8, 8)).logits
            assert logits.shape == (1, 10)
            pedigree = TrainingRecord.read(path)
            assert (pedigree.variant, pedigree.seed, pedigree.steps) == (variant, seed, 2)
    with Run.open(folder) as run:
        assert {f"{row.variant}/{row.seed}" for row in run.store.scores("training")} == {
            "baseline/0",
            "baseline/1",
            "layershuffle/0",
            "layershuffle/1",
        }


def test_a_method_can_be_added_to_a_run(trained: tuple[Path, Ended], vit: Path) -> None:
    folder, _ = trained
    before = stamps(folder)
    more = layerwise(
        "train", "robust", "layerdrop", "--model", vit, *DIGITS, "--seeds", "1", "--run", folder, "--no-baseline"
    )
    assert more.code == 0, more.err
    assert [line.split()[0] for line in more.out.splitlines()[2:5]] == ["baseline", "layershuffle", "layerdrop"]
    assert {name: stamp for name, stamp in stamps(folder).items() if name in before} == before


def test_every_variant_is_checked_before_the_first_is_trained(trained: tuple[Path, Ended], vit: Path) -> None:
    folder, _ = trained
    other = ("--no-baseline", "--seeds", "1", "--images", "digits", "--limit", "20", "--epochs", "1", "--batch-size")
    message = refused("train", "robust", "sequential,layershuffle", "--model", vit, "--run", folder, *other, "5")
    assert "layershuffle/seed-0 holds a different training run: its batch_size is 10, got 5" in message
    assert not (folder / "sequential").exists()


def test_the_default_run_name_depends_on_the_recipe(vit: Path) -> None:
    def name(method: str, **options: Any) -> str:
        given = {"methods": (method,), "images": "digits", "limit": 20, "baseline": False, **options}
        described = describe_call(train_robust, vit, **given)
        return str(default_folder(described.manifest, described.recipe))

    first = name("baseline")
    assert first.startswith("runs/vit-")
    assert first == name("sequential") == name("baseline", set=("dataloader_num_workers=0",))
    assert first != name("baseline", learning_rate=0.1)


@pytest.mark.slow
def test_overwrite_discards_models_and_rows(vit: Path, tmp_path: Path) -> None:
    command = ("train", "robust", "baseline", "--model", vit, *DIGITS, "--run", tmp_path / "run")
    assert layerwise(*command, "--seeds", "2").code == 0
    before = stamps(tmp_path / "run")
    ended = layerwise(*command, "--seeds", "1", "--overwrite", "--quiet")
    assert ended.code == 0
    assert ended.err == ""
    after = stamps(tmp_path / "run")
    assert not [name for name in after if "seed-1" in name]
    assert not set(after.values()) & set(before.values())


def trained_on(images: Path, folder: Path) -> tuple[str | Path, ...]:
    short = ("--epochs", "1", "--seeds", "1", "--batch-size", "10")
    return ("train", "robust", "baseline", "--images", images, "--run", folder / "run", *short)


def test_labels_that_do_not_fit_the_head_are_an_error(vit: Path, images: Path, tmp_path: Path) -> None:
    command = (*trained_on(images, tmp_path), "--model", vit)
    message = refused(*command)
    assert "must have 2 outputs for the classes of 'shapes' (circle, square), got 10" in message
    assert "--new-head" in message
    assert not (tmp_path / "run").exists()
    assert layerwise(*command, "--new-head").code == 0
    config = AutoModelForImageClassification.from_pretrained(tmp_path / "run/baseline/seed-0/model").config
    assert config.id2label == {0: "circle", 1: "square"}


@pytest.mark.parametrize(("method", "message"), [("layershuffle", "layers from 2"), ("baseline", "at least 2 layers")])
def test_a_model_with_one_layer_is_rejected(tmp_path: Path, method: str, message: str) -> None:
    vit = save_vit(tmp_path / "vit", depth=1)
    assert message in refused(
        "train", "robust", method, "--no-baseline", "--model", vit, *DIGITS, "--run", tmp_path / "run"
    )
    assert not (tmp_path / "run").exists()


def test_python_and_a_run_directory_train_the_same_models(
    trained: tuple[Path, Ended], vit: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = trained
    before = stamps(folder)
    options = {"images": "digits", "limit": 20, "epochs": 1.0, "batch_size": 10, "seeds": 2, "run": folder}
    result = library.train.layershuffle(vit, reporter=Silent(), **options)
    assert set(result.table("training")["variant"]) >= {"baseline", "layershuffle"}
    assert layerwise("run", folder, "--quiet").code == 0
    assert stamps(folder) == before
    assert library.train.robust.__name__ == "train_robust"
    with pytest.raises(AttributeError, match="nonsense"):
        library.train.nonsense  # noqa: B018


def test_training_does_not_change_an_opened_model(vit: Path, tmp_path: Path) -> None:
    stack = library.load(vit)
    before = weight_hash(stack.model)
    library.train.robust(
        stack,
        methods="baseline",
        images="digits",
        limit=20,
        batch_size=10,
        seeds=1,
        run=tmp_path / "run",
        reporter=Silent(),
    )
    assert weight_hash(stack.model) == before
    pedigree = TrainingRecord.read(tmp_path / "run/baseline/seed-0/model")
    assert pedigree.base == before
