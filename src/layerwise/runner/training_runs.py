"""Data, manifests, models and rows of runs that train models. A model is in `RUN/VARIANT/seed-N/model`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

from layerwise.data.cache_folder import hash_code
from layerwise.data.demo import python_stdlib
from layerwise.data.demo.corpus import build_demo_splits
from layerwise.data.model_location import EMBEDDED
from layerwise.data.splits import Splits, select_on_reported
from layerwise.data.text.corpus import BABYLM, Corpus, find_babylm_split, list_text_files, read_corpus
from layerwise.data.text.division import Division, divide_corpus, divide_documents
from layerwise.data.text.documents import Document
from layerwise.data.text.language_modeling import build_text_splits, pack_training_windows
from layerwise.data.text.sources import HubText, is_hub_text
from layerwise.data.text.token_cache import TextSource
from layerwise.data.vision.images import check_labels, read_images
from layerwise.data.vision.preprocessing import Augmentation, load_preprocessing
from layerwise.errors import DataError, RunError
from layerwise.measure.contrasts.variants import contrast_biases, contrast_shares, contrast_variants
from layerwise.measure.language.evaluation_data import find_objective
from layerwise.measure.stats.seeds import average_rows
from layerwise.results import Manifest, Run, Score
from layerwise.results.training_record import RETRAINED, TrainingRecord, find_trained_models, parse_refined_depth
from layerwise.results.vocabulary import (
    CONVERGENCE,
    DATA_SHARE,
    INITIAL_BIAS,
    MIN_UNITS,
    SECONDS,
    STUDY,
    TOKENS,
    TRAINING,
    TUNING_CONVERGENCE,
)
from layerwise.runner.opening import make_manifest
from layerwise.runner.reporter import Reporter
from layerwise.runner.training_options import TrainingData
from layerwise.stack import Stack
from layerwise.stack.max_length import keeps_texts_apart, longest_input
from layerwise.train.cost.convergence import fine_tuning_convergence, pretraining_convergence

DIGITS = "digits"
PILOT = "pilot"
TEXT_LENGTH = 256
"""Default number of tokens in a window of training text."""


def read_splits(
    options: TrainingData,
    stack: Stack,
    location: str | None,
    reporter: Reporter,
    *,
    seed: int,
    corpus: Corpus | None = None,
    augmentation: Augmentation = "none",
    check: bool = True,
    pack: bool = False,
) -> Splits:
    """Return the data splits. By default, these are digits for demo-vit, and the demo corpus for demo.

    The image preprocessing of the model is read from `location`. `seed` determines the splits. `corpus` replaces
    `--text`. If `pack`, training texts are packed into full rows. If `check`, the labels must fit the model's head.
    """
    takes_images = _takes_images(stack)
    _check_kind(options, stack, corpus)
    if pack and (takes_images or not keeps_texts_apart(stack.model)):
        reason = "takes images" if takes_images else "does not separate the texts of a row"
        raise DataError(f"--pack cannot be used: {stack.source.name} {reason}.")
    if not takes_images:
        texts = _texts(options, stack, reporter, seed, corpus, pack)
        return select_on_reported(texts) if options.select_on == "reported" else texts
    images = options.images or (DIGITS if stack.source.name == "demo-vit" else None)
    if images is None:
        raise DataError("--images is required: pass a folder or dataset (only demo-vit has its own images).")
    splits = read_images(
        images,
        seed=seed,
        unreadable=options.on_bad_image,
        augmentation=augmentation,
        limit=options.limit,
        select_on=options.select_on,
        preprocessing=load_preprocessing(
            stack.model.config, location, trust_remote_code=stack.source.trust_remote_code
        ),
        progress=lambda done, total: reporter.progress("reading images", done / total),
    )
    for note in check_labels(splits, stack.model.config) if check else ():
        reporter.log(f"note: {note}")
    return splits


def _check_kind(options: TrainingData, stack: Stack, corpus: Corpus | None) -> None:
    takes_images, name = _takes_images(stack), stack.source.name
    if options.images is not None and options.text is not None:
        raise DataError("--images and --text cannot be combined.")
    texts = any(each is not None for each in (options.text, options.validation, options.test, corpus))
    if texts if takes_images else options.images is not None:
        needed = "images. Pass --images FOLDER_OR_DATASET" if takes_images else "text. Pass --text FILE_OR_FOLDER"
        raise DataError(f"{name} takes {needed}.")
    if options.limit is not None and not takes_images:
        raise DataError(f"--limit requires images, and {name} takes text. Omit it or pass less text.")


def _takes_images(stack: Stack) -> bool:
    return getattr(stack.model, "main_input_name", None) == "pixel_values"


def _texts(
    options: TrainingData, stack: Stack, reporter: Reporter, seed: int, corpus: Corpus | None, pack: bool
) -> Splits:
    splits, length = _windows(options, stack, reporter, seed, corpus)
    if not pack or stack.tokenizer is None:
        return splits
    rows = pack_training_windows(splits, length, seed=seed, start=stack.tokenizer.bos_token_id)
    reporter.log(f"{len(splits.train):,} windows of text packed into {len(rows.train):,} rows of {length} tokens")
    return rows


def _windows(
    options: TrainingData, stack: Stack, reporter: Reporter, seed: int, corpus: Corpus | None
) -> tuple[Splits, int]:
    length = options.max_length
    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} has no tokenizer. Pass one with --tokenizer PATH.")
    if all(each is None for each in (options.text, options.validation, options.test, corpus)):
        if stack.source.name not in EMBEDDED:
            raise DataError("--text is required: pass a file or a folder (only demo has its own text).")
        length = length or TEXT_LENGTH
        return build_demo_splits(stack.tokenizer, seed=seed, length=length), length
    positions = longest_input(stack.model)
    division = split_documents(options, seed, corpus)
    for note in division.notes:
        reporter.log(f"note: {note}")
    length = length or min(TEXT_LENGTH, positions or TEXT_LENGTH)
    splits = build_text_splits(
        stack.tokenizer, division, length=length, positions=positions, objective=find_objective(stack)
    )
    return splits, length


def split_documents(options: TrainingData, seed: int, corpus: Corpus | None = None) -> Division:
    """Split the text into documents for training, validation and testing.

    The default text is Python's standard library. `corpus` replaces `--text`. If no held-out texts are given, documents
    are drawn with `seed`.
    """
    if corpus is None and options.text is not None:
        corpus = read_corpus(options.text)
    if corpus is None:
        if options.validation is not None or options.test is not None:
            raise DataError("--validation and --test require --text.")
        return _standard_library(seed)
    held_out = (None if path is None else read_corpus(path) for path in (options.validation, options.test))
    parts = divide_documents(corpus, *held_out, seed=seed)
    _check_one_split(options.text, parts.parts["train"])
    return parts


def make_text_source(options: TrainingData, seed: int, corpus: Corpus | None = None) -> TextSource:
    """Return a description of the text for the token cache, which calls `split_documents` if it has to tokenize."""
    paths = (options.text, options.validation, options.test)
    settings = {
        "paths": [None if path is None else str(path.absolute()) for path in paths],
        "seed": seed,
        "versions": [HubText.parse(str(path)).version() for path in paths if path is not None and is_hub_text(path)],
        "program": hash_code(Path(__file__)),
    }
    read = partial(split_documents, options, seed, corpus)
    if options.text is None or corpus is not None:
        return TextSource(read, settings)
    given = [path for path in paths if path is not None]
    return TextSource(read, settings, lambda: [file for path in given for file in list_text_files(path)])


def _check_one_split(text: Path | None, documents: tuple[Document, ...]) -> None:
    files = {each.part_of for each in documents if each.part_of is not None}
    counts = {ending: sum(find_babylm_split(file) == ending for file in files) for ending in BABYLM}
    if counts[".train"] and counts[".dev"] + counts[".test"]:
        listed = ", ".join(f"{count} {ending}" for ending, count in counts.items() if count)
        raise DataError(
            f"{text or 'The text'} contains both training and held-out files ({listed}). Pass the folder of the .train "
            "files as --text and the others as --validation and --test."
        )


def _standard_library(seed: int) -> Division:
    seen, held_out = (
        tuple(Document(f"stdlib/{each.module}", each.text) for each in python_stdlib.read_documents(split, "prose"))
        for split in python_stdlib.SPLITS
    )
    train, validation = divide_corpus(Corpus("stdlib", seen), (0.9, 0.1), seed)
    return Division("standard library", {"train": train, "validation": validation, "test": held_out})


FAMILY = "robustness"
"""Entry in `families` by which the manifest of a `layerwise train robust` run is recognized."""

UNFINISHED = "has no finished model yet. To resume training, run the same `layerwise train robust` command again."


def make_training_manifest(
    stack: Stack,
    weights: str,
    splits: Splits,
    *,
    family: str = FAMILY,
    tasks: tuple[str, ...] = (),
    seed: int = 0,
    settings: Mapping[str, object] | None = None,
) -> Manifest:
    return make_manifest(
        stack,
        weights,
        corpus=splits.name,
        corpus_hash=splits.digest,
        documents=len(splits.test),
        tokens=len(splits.test),
        window=1,
        families=(family,),
        tasks=tasks,
        seed=seed,
        settings=settings,
    )


def read_training_manifest(folder: Path) -> Manifest:
    with Run.open(folder) as run:
        manifest = run.manifest
    if FAMILY not in manifest.families:
        raise RunError(
            f"{folder} must be a run of `layerwise train robust`, got one of {', '.join(manifest.families[:3])}. Pass "
            "a run of `layerwise train robust`, or a model."
        )
    return manifest


def check_test_size(splits: Splits) -> None:
    count = len(splits.test)
    if count < MIN_UNITS:
        raise DataError(
            f"The test split of {splits.name} must have at least {MIN_UNITS} examples, got {count}. Pass more "
            "documents, shorter windows (--max-length) or more images (--limit)."
        )


def describe_splits(splits: Splits) -> str:
    sizes = f"{len(splits.train):,} training, {len(splits.validation):,} validation, {len(splits.test):,} test examples"
    origin = f" ({splits.origin})" if splits.origin else ""
    return f"{splits.name}: {sizes}{origin}" + (f"; {len(splits.skipped):,} unreadable" if splits.skipped else "")


def describe_split_limits(splits: Splits) -> tuple[str, ...]:
    notes = []
    if splits.origin:
        reported = len(splits.test)
        notes.append(f"{splits.name} is {splits.origin}: {reported:,} images that no model was trained on.")
    if splits.selects_on_reported:
        notes.append(
            "Checkpoints were selected on the reported examples (--select-on reported), as in the papers: scores are "
            "optimistic, because the best of several checkpoints is chosen on the same examples."
        )
    return tuple(notes)


def refuse_other_splits(what: str, data_name: str, splits: Splits, options: Sequence[str]) -> RunError:
    return RunError(
        f"{what} was trained on {data_name} with other splits than {splits.name}, so it may have seen the test "
        f"examples. Pass the {', '.join(options[:-1])} and {options[-1]} with which it was trained."
    )


def make_training_rows(records: Mapping[tuple[str, int], TrainingRecord]) -> list[Score]:
    """Return rows of measure `training` for each variant and seed: the logged losses by step, and the costs.

    All models that were retrained for fewer layers have the variant `RETRAINED`, and their number of layers is `kept`.
    """
    rows = []
    for (variant, seed), record in records.items():
        layers = parse_refined_depth(variant)
        identity: dict[str, Any] = (
            {"variant": variant, "seed": seed}
            if layers is None
            else {"variant": RETRAINED, "seed": seed, "kept": layers}
        )
        costs = {
            "steps": record.steps,
            "epochs": record.epochs,
            "seconds": record.seconds,
            "best_step": record.best_step,
            "examples": record.examples,
            **record.figures,
        }
        rows += [Score(TRAINING, name, float(value), **identity) for name, value in costs.items()]
        noted = {(moment.step, moment.kind): moment.loss for moment in record.history}
        rows += [Score(TRAINING, f"{kind}_loss", loss, step=step, **identity) for (step, kind), loss in noted.items()]
    return rows


def average_over_seeds(rows: Iterable[Score]) -> list[Score]:
    """For each variant and share of the budget, average rows over seeds. Intervals are over seeds and documents."""

    def group_of(row: Score) -> tuple[str, float]:
        return str(row.variant), row.share or 0.0

    of_seeds = sorted((row for row in rows if row.seed is not None), key=group_of)
    return [average_rows(list(group), "", seed=None) for _, group in groupby(of_seeds, key=group_of)]


@dataclass(frozen=True, slots=True)
class TrainedModel:
    variant: str
    seed: int
    folder: Path
    survey_folder: Path

    @property
    def label(self) -> str:
        return f"{self.variant}/{self.seed}"


def finished_models(run: Path) -> tuple[TrainedModel, ...]:
    return tuple(
        TrainedModel(model.parts[-3], int(model.parts[-2].removeprefix("seed-")), model, model.parent)
        for model in find_trained_models(run)
    )


def store_comparisons(run: Run) -> None:
    records = [TrainingRecord.read(each.folder) for each in finished_models(run.folder)]
    is_timed = any(record and record.recipe.get("pretraining", {}).get("seconds") for record in records)
    terms = SECONDS if is_timed else TOKENS
    scores = run.store.scores()
    comparisons = {
        STUDY: contrast_variants(scores, terms),
        INITIAL_BIAS: contrast_biases(scores),
        DATA_SHARE: contrast_shares(scores),
        CONVERGENCE: pretraining_convergence(scores),
        TUNING_CONVERGENCE: fine_tuning_convergence(scores),
    }
    run.store.replace_scores(comparisons, chain.from_iterable(comparisons.values()))


def discard_trainings(run: Path) -> None:
    for folder in [*run.glob("*/seed-*"), *run.glob(f"{PILOT}/*/seed-*")]:
        shutil.rmtree(folder)


def report_training(reporter: Reporter, label: str) -> Callable[[int, int, float | None], None]:
    def progress(step: int, steps: int, loss: float | None) -> None:
        reporter.progress(label if loss is None else f"{label}  loss {loss:.3f}", step / steps)

    return progress
