"""The model and the data of a training and the runs that measure it."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import ViTForImageClassification

from cli.picture_models import save_images, save_vit
from layerwise.data.model_location import location_of
from layerwise.data.splits import Splits
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.data.text.language_modeling import PackedWindows
from layerwise.errors import DataError, RunError, TrainError
from layerwise.plan import Plan
from layerwise.results import Run
from layerwise.results.training_record import TrainingRecord
from layerwise.runner.opening import open_base
from layerwise.runner.reporter import Silent
from layerwise.runner.training_options import TrainingData
from layerwise.runner.training_runs import (
    TEXT_LENGTH,
    describe_split_limits,
    make_training_manifest,
    read_splits,
    split_documents,
)
from layerwise.stack import Stack, load, weight_hash
from layerwise.stack.max_length import keeps_texts_apart
from layerwise.studies.robustness.merge_verb import merge
from layerwise.studies.robustness.verb import robustness
from studies.describing import describe_call

OPENED = Corpus("opened", tuple(Document(f"{number}", f"{number} words of one document. " * 9) for number in range(40)))


@pytest.fixture(scope="module")
def demo() -> Stack:
    return load("demo", device="cpu")


@pytest.fixture(scope="module")
def vision() -> Stack:
    return load("demo-vit", device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (TrainingData(images="digits", text=Path("x.txt")), "--images and --text cannot be combined"),
        (TrainingData(images="digits"), "demo takes text. Pass --text"),
        (TrainingData(limit=3), "--limit requires images, and demo takes text"),
    ],
)
def test_a_language_model_refuses_images(demo: Stack, options: TrainingData, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_splits(options, demo, None, Silent(), seed=0)


@pytest.mark.parametrize("options", [TrainingData(text=Path("x.txt")), TrainingData(validation=Path("x.txt"))])
def test_a_vision_model_refuses_texts(vision: Stack, options: TrainingData) -> None:
    with pytest.raises(DataError, match="demo-vit takes images"):
        read_splits(options, vision, None, Silent(), seed=0)
    with pytest.raises(DataError, match="demo-vit takes images"):
        read_splits(TrainingData(), vision, None, Silent(), seed=0, corpus=OPENED)


@pytest.mark.slow
def test_demo_models_bring_their_own_data(demo: Stack, vision: Stack) -> None:
    assert len(read_splits(TrainingData(), demo, None, Silent(), seed=0).train) > 1000
    assert len(read_splits(TrainingData(limit=20), vision, location_of("demo-vit"), Silent(), seed=0).train) <= 20


def test_an_opened_corpus_is_divided_as_its_file_would_be(demo: Stack, tmp_path: Path) -> None:
    (tmp_path / "opened").mkdir()
    for document in OPENED.documents:
        (tmp_path / "opened" / f"{int(document.id):02}.txt").write_text(document.text)
    opened = split_documents(TrainingData(), 3, OPENED)
    read = split_documents(TrainingData(text=tmp_path / "opened"), 3)
    assert read.name.endswith("opened")
    assert [len(part) for part in opened.parts.values()] == [len(part) for part in read.parts.values()]
    splits = read_splits(TrainingData(max_length=16), demo, None, Silent(), seed=3, corpus=OPENED)
    assert splits.name == "opened"
    assert len(splits.test) > 0


@pytest.mark.slow
def test_without_a_text_the_standard_library_is_divided() -> None:
    division = split_documents(TrainingData(), 0)
    assert division.name == "standard library"
    assert all(division.parts[part] for part in ("train", "validation", "test"))


def test_what_is_reported_may_select_and_the_page_says_so(demo: Stack, vision: Stack) -> None:
    options = TrainingData(max_length=16, select_on="reported")
    text = read_splits(options, demo, None, Silent(), seed=3, corpus=OPENED)
    pictures = read_splits(
        TrainingData(limit=20, select_on="reported"), vision, location_of("demo-vit"), Silent(), seed=0
    )
    for splits in (text, pictures):
        assert splits.validation is splits.test
        assert splits.train is not splits.test
        (note,) = describe_split_limits(splits)
        assert note.startswith("Checkpoints were selected on the reported examples (--select-on reported)")
    apart = read_splits(TrainingData(max_length=16), demo, None, Silent(), seed=3, corpus=OPENED)
    assert describe_split_limits(apart) == ()
    assert apart.digest != text.digest
    told = describe_split_limits(replace(pictures, origin="reported on all of its validation split"))
    assert told[0] == (
        f"digits is reported on all of its validation split: {len(pictures.test)} images that no model was trained on."
    )


def test_packed_texts_are_full_rows_that_the_engine_keeps_apart(demo: Stack, vision: Stack) -> None:
    plain = read_splits(TrainingData(), demo, None, Silent(), seed=0, corpus=OPENED)
    rows = read_splits(TrainingData(), demo, None, Silent(), seed=0, corpus=OPENED, pack=True)
    assert isinstance(rows.train, PackedWindows)
    tokens = sum(len(window.ids) for window in rows.train.windows)
    assert len(rows.train) == math.ceil(tokens / TEXT_LENGTH) < len(plain.train)
    assert rows.digest != plain.digest
    assert {window.document for window in rows.train.windows} == {window.document for window in plain.train.windows}
    assert rows.test is not rows.train
    with demo.under(Plan.parse("1 0 2-4")):
        assert keeps_texts_apart(demo.model)
    with pytest.raises(DataError, match="--pack cannot be used: demo-vit takes images"):
        read_splits(TrainingData(), vision, None, Silent(), seed=0, pack=True)


def test_a_named_model_is_opened_again_in_float32() -> None:
    base = open_base("demo", device="cpu")
    first, second = base.again(), base.again()
    assert first.model is not second.model
    assert first.dtype == torch.float32
    assert weight_hash(first.model) == base.base().weights


def test_an_opened_model_is_copied_and_stays_as_it_is() -> None:
    stack = load("demo", device="cpu", dtype="bfloat16")
    before = weight_hash(stack.model)
    copy = open_base(stack).again()
    torch.nn.init.zeros_(next(copy.model.parameters()))
    assert (copy.dtype, stack.dtype) == (torch.float32, torch.bfloat16)
    assert weight_hash(stack.model) == before


def test_an_opened_model_takes_no_new_head() -> None:
    base = open_base(load("demo-vit", device="cpu"))
    with pytest.raises(TrainError, match="Pass its name or directory"):
        base.base(("one", "two"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Splits]:
    home = tmp_path_factory.mktemp("trained")
    model, run = save_vit(home / "vit", classes=2), home / "run"
    given = {"images": str(save_images(home / "images")), "limit": 30}
    stack = load(model)
    splits = read_splits(TrainingData(**given), stack, str(model), Silent(), seed=3)
    manifest = make_training_manifest(stack, "weights", splits)
    with Run.create(run, replace(manifest, experiment={"experiment": "train robust", **given, "seed": 3})):
        pass
    for seed in range(2):
        folder = run / "layershuffle" / f"seed-{seed}" / "model"
        ViTForImageClassification.from_pretrained(model).save_pretrained(folder)
        recipe = {"variant": "plain"}
        TrainingRecord("layershuffle", seed, "base", splits.digest, splits.name, recipe, 1, 1.0, 1, 1.0, 1).write(
            folder
        )
    return run, splits


def digest_of(verb: Callable[..., object], model: object, **options: Any) -> str:
    return describe_call(verb, model, **options).manifest.corpus_hash


@pytest.mark.parametrize("verb", ["robustness", "merge"])
def test_the_images_of_the_training_are_those_of_its_run(verb: str, trained: tuple[Path, Splits]) -> None:
    run, splits = trained
    assert digest_of({"robustness": robustness, "merge": merge}[verb], str(run)) == splits.digest


def test_what_is_named_stands_and_other_examples_are_refused(trained: tuple[Path, Splits], tmp_path: Path) -> None:
    run, splits = trained
    with pytest.raises(RunError, match="was trained on images with other splits"):
        digest_of(robustness, run, limit=20)
    copies = save_images(tmp_path / "images")
    assert digest_of(robustness, run, images=str(copies)) == splits.digest
