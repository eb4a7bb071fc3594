"""`layerwise train elc`: models, rows, resumption and errors."""

from itertools import islice
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from transformers import AutoModelForMaskedLM

from cli.command import Ended, layerwise, refused
from data import babylm
from layerwise.data.suites import generated
from layerwise.data.text.corpus import read_corpus
from layerwise.data.text.encoding import encode_documents
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.results import Run
from layerwise.studies.train_elc import evaluation as module
from layerwise.studies.train_elc.trainings import FAMILY
from layerwise.studies.train_elc.verb import elc
from layerwise.train.pretrain.recipe import PRESETS
from row_names import named

WORDS = ("The cat saw the dog.", "A dog ran to the old house.", "It did not see him!", "Who ran away then?")
SHORT = ("--steps", "3", "--batch-size", "8", "--evals", "1", "--device", "cpu")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    documents = ["\n".join(WORDS[(n + k) % 4] for k in range(30 + n)) for n in range(30)]
    (folder / "words.txt").write_text("\n<|endoftext|>\n".join(documents) + "\n")
    return folder


@pytest.fixture(scope="module")
def few_pairs(tmp_path_factory: pytest.TempPathFactory) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PAIRS", 1)
        patch.setattr(generated, "PARADIGMS", dict(islice(generated.PARADIGMS.items(), 3)))
        yield


@pytest.fixture(scope="module")
def pretrained(texts: Path, few_pairs: object, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    folder = tmp_path_factory.mktemp("runs") / "elc"
    ended = layerwise("train", "elc", "--text", texts, *SHORT, "--run", folder)
    assert ended.code == 0, ended.err
    return folder, ended


@pytest.mark.slow
def test_pretraining_writes_models_and_rows(pretrained: tuple[Path, Ended]) -> None:
    folder, _ = pretrained
    for variant in ("ltg", "elc"):
        assert AutoModelForMaskedLM.from_pretrained(folder / variant / "seed-0" / "model").config.variant == variant
    with Run.open(folder) as run:
        subjects = {measure: {named(row) for row in run.store.scores(measure)} for measure in ("masked_lm", "pairs")}
        assert subjects == {"masked_lm": {"ltg", "elc", "ltg/0", "elc/0"}, "pairs": {"ltg", "elc", "ltg/0", "elc/0"}}
        assert {(row.variant, row.seed) for row in run.store.scores("alpha")} == {("elc", 0)}
        written = run.store.scores("training")
        metrics = {row.metric for row in written if row.variant == "elc"}
        assert {"tokens", "parameters", "step_seconds", "peak_bytes", "latency_seconds", "seconds"} <= metrics
        assert run.manifest.families == (FAMILY,)


def test_option_choices_match_the_package() -> None:
    assert set(get_args(get_type_hints(elc)["size"])) == set(PRESETS)


@pytest.fixture(scope="module")
def distributed(few_pairs: object, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Path], Path, Ended]:
    root = tmp_path_factory.mktemp("babylm")
    folders = babylm.write(root, "2023", train=120, held_out=40)
    texts = ("--text", folders["train"], "--validation", folders["dev"], "--test", folders["test"])
    options = ("--variants", "elc", "--vocabulary", "300", *SHORT)
    ended = layerwise("train", "elc", *texts, *options, "--run", root / "run")
    assert ended.code == 0, ended.err
    return folders, root / "run", ended


@pytest.mark.slow
def test_babylm_files_are_read_as_distributed(distributed: tuple[dict[str, Path], Path, Ended]) -> None:
    folders, run, ended = distributed
    looked, reported = (len(read_corpus(folders[split]).documents) for split in ("dev", "test"))
    assert f"babylm_10M: 6 documents for training, {looked} for validation, {reported} for the report" in ended.err
    assert "note:" not in ended.err
    path = run / "elc" / "seed-0" / "model"
    whole = encode_documents(load_tokenizer(str(path)), read_corpus(folders["train"]).documents)
    assert f"{whole.tokens:,} training tokens" in ended.err


def test_mixed_splits_are_rejected(tmp_path: Path) -> None:
    folders = babylm.write(tmp_path / "all", train=40, held_out=20)
    said = refused("train", "elc", "--text", tmp_path / "all", "--validation", folders["dev"])
    assert "6 .train, 6 .test). Pass the folder of the .train files as --text" in said
    assert "--validation and --test require --text" in refused("train", "elc", "--validation", folders["dev"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--size", "smal"), "Did you mean small?"),
        (("--variants", "ltg,denseformr"), "did you mean denseformer"),
        (("--epochs", "2", "--steps", "2"), "Pass one of them"),
        (("--steps", "2", "--batch-size", "6"), "must be a multiple of 4"),
        (("--variants", ","), "at least one variant is required"),
        (("--variants", "ltg-zero"), "the suffixes of 'ltg-zero' require a variant with layer weights"),
        (("--tokenizer", "x", "--vocabulary", "300"), "--vocabulary and --tokenizer cannot be combined"),
        (("--batch-size", "4096"), "--batch-size must be at most"),
    ],
)
def test_invalid_options_are_rejected(texts: Path, tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    run = tmp_path / "run"
    assert said in refused("train", "elc", "--text", texts, "--run", run, *options)
    assert not run.exists()
