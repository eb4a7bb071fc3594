"""The work of `layerwise train growth`: a model, its text, and the cost of its layers.

If no model is given, a randomly initialized one of `--size` is used, with a tokenizer trained on the text. Training
reads only complete windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerBase

from layerwise.data.splits import Examples, Splits
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.division import Division
from layerwise.data.text.documents import Document
from layerwise.data.text.language_modeling import TokenWindows, build_text_splits, keep_full_windows, select_evenly
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.data.text.vocabulary import train_bytepair
from layerwise.errors import DataError, TrainError
from layerwise.measure.cost.flops import model_cost
from layerwise.measure.language.evaluation_data import find_objective
from layerwise.plan.schedule import ModelCost
from layerwise.results import Manifest
from layerwise.results.manifest import model_name
from layerwise.runner.arguments import ModelLike, TextLike
from layerwise.runner.opening import make_manifest, open_base, open_corpus, quiet_transformers
from layerwise.runner.reporter import Reporter
from layerwise.runner.training_options import TrainingData
from layerwise.runner.training_runs import TEXT_LENGTH, split_documents
from layerwise.runner.trainings import RecipeTraining, TrainingsTask
from layerwise.stack import Stack
from layerwise.stack.checks.checkpoint_files import open_config
from layerwise.stack.max_length import longest_input
from layerwise.train.arguments import check_arguments
from layerwise.train.phases.random_init import SIZES, TINY, has_weights, random_model, vocabulary_size
from layerwise.train.processes import shared_recipe, training_settings
from layerwise.train.recipe import Settings, check_positive
from layerwise.train.training import Base

FAMILY = "growth"
"""Family in the manifest of a growth run."""

SHORT_LENGTH = 128
"""Default number of tokens in a window, if no model is given."""

VALIDATION_WINDOWS = 128
"""Maximum number of validation windows, which are evenly spaced over the text."""

FROM_RANDOM = Settings(
    batch_size=8,
    learning_rate=1e-3,
    schedule="cosine",
    warmup=0.05,
    betas=(0.9, 0.95),
    epsilon=1e-8,
    weight_decay=0.1,
    evals=4,
)
"""Default settings for training from random weights."""

FROM_TRAINED = replace(FROM_RANDOM, learning_rate=3e-4)
"""Default settings for training from a checkpoint."""

DEFAULTS_BY_MODEL = {TINY: replace(FROM_RANDOM, learning_rate=2.4e-2, warmup=0.2)}
"""Default settings for specific models."""

_MIN_NOTED_SHARE = 0.005


@dataclass(frozen=True, slots=True)
class GrowthTask:
    """A model to train in phases: its initial weights, its data, and the cost of its layers.

    Args:
        validation_corpus: Complete documents of the validation windows.
        pretrained: True if the initial weights are those of a checkpoint.
        reinitialized: True if the weights of the checkpoint are replaced with random ones.
        left_out: Share of the training tokens that are in no complete window.
    """

    base: Base
    stack: Stack
    splits: Splits
    validation_corpus: Corpus
    length: int
    cost: ModelCost
    settings: Settings
    arguments: Mapping[str, Any]
    pretrained: bool
    reinitialized: bool
    left_out: float

    @property
    def windows(self) -> int:
        return len(self.splits.train)

    def steps_of(self, epochs: float) -> int:
        """Return the number of steps in `epochs`, or raise `TrainError` if the text does not fill a batch."""
        check_positive("epochs", epochs)
        batch = self.settings.batch_size
        if self.windows < batch:
            raise TrainError(
                f"--batch-size must be at most {self.windows:,}, because the training text has that many windows of "
                f"{self.length} tokens, got {batch:,}. Pass more text, a smaller --max-length, or a smaller batch size."
            )
        return max(1, round(epochs * self.windows / batch))

    def unit(self, trainings: Sequence[RecipeTraining] = ()) -> TrainingsTask:
        return TrainingsTask(self.base, self.splits, trainings, self.arguments)

    def manifest(self, seed: int) -> Manifest:
        splits = self.splits
        windows = list_windows(splits.test).windows
        return make_manifest(
            self.stack,
            self.base.weights,
            corpus=splits.name,
            corpus_hash=splits.digest,
            documents=len({(window.task, window.document) for window in windows}),
            tokens=sum(window.scored for window in windows),
            window=self.length,
            families=(FAMILY,),
            tasks=("from scratch",) if self.reinitialized else (),
            seed=seed,
            settings=training_settings(self.arguments),
        )

    def shared_recipe(self, **options: object) -> dict[str, object]:
        return shared_recipe({"settings": asdict(self.settings), **options}, self.arguments)

    def describe(self) -> Iterator[str]:
        stack, splits = self.stack, self.splits
        weights = "the weights of the checkpoint" if self.pretrained else "random weights"
        yield f"{model_name(stack.source.name)}: {stack.depth} layers, {stack.device}, from {weights}"
        yield (
            f"{splits.name}: {self.windows:,} windows of {self.length} tokens for training, "
            f"{len(splits.validation):,} for validation, {len(splits.test):,} for the results, of different documents"
        )
        if self.left_out > _MIN_NOTED_SHARE:
            yield (
                f"note: {self.left_out:.1%} of the training tokens are not used, because they come after the last full "
                "window of their document"
            )


def open_task(
    model: ModelLike | None,
    text: TextLike,
    reporter: Reporter,
    *,
    data: TrainingData,
    size: str,
    from_scratch: bool,
    seed: int,
    loading: Mapping[str, Any],
    arguments: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> GrowthTask:
    """Open the model, read the text, and count the operations of the layers.

    `loading` has the options of `open_stack`, and `settings` the fields of `Settings` that differ from the defaults.
    """
    check_arguments(arguments)
    quiet_transformers()
    name = str(model) if isinstance(model, str | Path) else None
    pretrained = model is not None and (name is None or has_weights(name, loading["revision"]))
    if from_scratch and not pretrained:
        raise DataError(f"{name or SIZES[size].name} already starts from random weights. Remove --from-scratch.")
    opened = open_base(model, **loading) if model is not None and pretrained else None
    corpus = None if text is None else open_corpus(text, "")
    division = split_documents(data, seed, corpus)
    documents = division.parts["train"]
    base = _make_random_base(name, size, documents, reporter, loading) if opened is None else opened.base()
    stack = base.open() if opened is None else opened.stack
    for note in division.notes:
        reporter.log(f"note: {note}")
    length = data.max_length or (SHORT_LENGTH if model is None else TEXT_LENGTH)
    splits, left_out = _make_splits(stack, division, length)
    pretrained = pretrained and not from_scratch
    usual = FROM_TRAINED if pretrained else DEFAULTS_BY_MODEL.get(stack.source.name, FROM_RANDOM)
    return GrowthTask(
        base,
        stack,
        splits,
        Corpus(f"{division.name}, validation", division.parts["validation"]),
        length,
        model_cost(stack, length),
        replace(usual, **settings),
        arguments,
        pretrained=pretrained,
        reinitialized=from_scratch,
        left_out=left_out,
    )


def _make_random_base(
    model: str | None, size: str, documents: tuple[Document, ...], reporter: Reporter, loading: Mapping[str, Any]
) -> Base:
    revision, device = loading["revision"], loading["device"]
    settings = None if model is None else open_config(model, revision)
    if loading["tokenizer"] is not None:
        tokenizer = load_tokenizer(loading["tokenizer"])
    else:
        tokenizer = None if model is None else _load_tokenizer_of(model, revision)
    if tokenizer is None:
        entries = SIZES[size].vocabulary if settings is None else vocabulary_size(settings, str(model))
        reporter.log(f"training a tokenizer with {entries:,} tokens on {len(documents):,} documents")
        tokenizer = train_bytepair((each.text for each in documents), entries)
    if settings is None:
        return random_model(SIZES[size].config(tokenizer), tokenizer, SIZES[size].name, device=device)
    return random_model(settings, tokenizer, str(model), device=device)


def _load_tokenizer_of(model: str, revision: str | None) -> PreTrainedTokenizerBase | None:
    try:
        return load_tokenizer(model, revision=revision)
    except DataError:
        return None


def _make_splits(stack: Stack, text: Division, length: int) -> tuple[Splits, float]:
    if stack.tokenizer is None:
        raise DataError(f"{stack.source.name} must include a tokenizer. Pass one with --tokenizer PATH.")
    positions = longest_input(stack.model)
    splits = build_text_splits(
        stack.tokenizer, text, length=length, positions=positions, objective=find_objective(stack)
    )
    train = list_windows(splits.train)
    complete = keep_full_windows(train, length)
    tokens = sum(len(window.ids) for window in train.windows)
    left_out = 1 - length * len(complete) / tokens
    validation = select_evenly(list_windows(splits.validation), VALIDATION_WINDOWS)
    return replace(splits, train=complete, validation=validation), left_out


def list_windows(examples: Examples) -> TokenWindows:
    assert isinstance(examples, TokenWindows), "texts are divided into windows"
    return examples
