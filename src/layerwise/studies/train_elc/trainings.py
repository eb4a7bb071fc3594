"""The pretraining runs of `layerwise train elc`: several variants and seeds on one text.

Suffixes in the name of a variant (BASE[-START][-frozen][-share-X]) change the layer weights or the text:

elc-identity    start from the identity: every layer reads only the previous one
elc-bias-2      start with the scalar 2 for the previous layer
elc-frozen      do not train the layer weights
elc-share-0.5   train on half of the documents; a larger share contains a smaller one
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from transformers import PreTrainedTokenizerBase

from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import encode_documents
from layerwise.data.text.segments import PretrainingText, cut_segments, hash_parts
from layerwise.data.text.token_cache import Vocabulary, open_text
from layerwise.data.text.tokenizer import load_tokenizer
from layerwise.data.text.vocabulary import check_tokenizer
from layerwise.errors import TrainError, near_matches
from layerwise.measure.contrasts.variants import find_share
from layerwise.models.elc.configuration import INITIALIZATIONS, VARIANTS
from layerwise.results import Manifest, Run
from layerwise.results.training_record import MODEL, TrainingRecord
from layerwise.runner.opening import quiet_transformers, read_hardware, read_numerics
from layerwise.runner.reporter import Reporter, format_duration
from layerwise.runner.tasks import Remaining
from layerwise.runner.training_options import TrainingData
from layerwise.runner.training_runs import make_text_source, split_documents
from layerwise.runner.trainings import FolderTraining, FolderTrainings
from layerwise.stack.load import resolve_device
from layerwise.train.arguments import check_arguments
from layerwise.train.pretrain.recipe import PretrainingRecipe, pretraining_recipe
from layerwise.train.pretrain.trainer import pretrain, trainer_of, training_config
from layerwise.train.processes import shared_recipe, training_settings
from layerwise.train.training_log import Progress

_NAME = re.compile(
    rf"(?P<base>{'|'.join(sorted(VARIANTS, key=len, reverse=True))})"
    rf"(-(?P<start>{'|'.join(INITIALIZATIONS)})|-bias-(?P<bias>-?\d+(\.\d+)?))?"
    r"(?P<frozen>-frozen)?"
    r"(-share-(?P<share>0\.\d+))?"
)


def make_recipe(size: str, name: str, **changes: Any) -> PretrainingRecipe:
    """Return the recipe of the variant `name`; `changes` overrides settings.

    Raises:
        TrainError: If the variant is unknown.

    Example:
    >>> recipe = make_recipe("tiny", "elc-bias-2-frozen")
    >>> recipe.variant, recipe.architecture, recipe.initialization, recipe.frozen_layer_weights
    ('elc-bias-2-frozen', 'elc', '2', True)
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise TrainError(
            f"unknown variant {name!r}; {near_matches(name, VARIANTS)}, with optional suffixes -identity, -zero or "
            "-bias-2, -frozen and -share-0.5"
        )
    start = match["start"] or match["bias"]
    is_frozen = match["frozen"] is not None
    if (start or is_frozen) and not VARIANTS[match["base"]].mixes:
        raise TrainError(
            f"the suffixes of {name!r} require a variant with layer weights, such as elc, got {match['base']}. Remove "
            "them, or change the variant."
        )
    if is_frozen:
        changes["frozen_layer_weights"] = True
    return pretraining_recipe(size, match["base"], variant=name, initialization=start, **changes)


def draw_share(documents: Sequence[Document], share: float, seed: int) -> tuple[Document, ...]:
    """Draw random documents with a share of the words, in their original order; larger shares contain smaller ones.

    >>> four = [Document(name, "one two three four") for name in "abcd"]
    >>> len(draw_share(four, 0.5, 0)), set(draw_share(four, 0.25, 0)) <= set(draw_share(four, 0.5, 0))
    (2, True)
    """
    words = [len(each.text.split()) for each in documents]
    order = list(range(len(documents)))
    Random(f"{seed}/shares").shuffle(order)
    goal, count = share * sum(words), 0
    drawn = set()
    for index in order:
        if count >= goal - 1e-9 * goal:
            break
        drawn.add(index)
        count += words[index]
    return tuple(each for index, each in enumerate(documents) if index in drawn)


def share_text(
    text: PretrainingText,
    parts: Mapping[str, Sequence[Document]],
    tokenizer: PreTrainedTokenizerBase,
    share: float,
    seed: int,
) -> PretrainingText:
    train = draw_share(parts["train"], share, seed)
    return replace(
        text,
        name=f"{text.name}, {share:g} of it",
        digest=hash_parts({**parts, "train": train}),
        train=encode_documents(tokenizer, train),
    )


FAMILY = "pretraining"
"""Family in the manifest of a run."""


@dataclass(frozen=True)
class Pretrainings(FolderTrainings[PretrainingRecipe]):
    """Pretraining runs of all recipes with every seed; `arguments` overrides `TrainingArguments` of the recipes."""

    trainings: Sequence[FolderTraining[PretrainingRecipe]]
    tokenizer: PreTrainedTokenizerBase
    text: PretrainingText
    device: str
    arguments: Mapping[str, Any]

    @property
    def recipes(self) -> tuple[PretrainingRecipe, ...]:
        return tuple(dict.fromkeys(each.recipe for each in self.trainings))

    @property
    def seeds(self) -> int:
        return len({each.seed for each in self.trainings})

    def by_share(
        self, data: TrainingData, reporter: Reporter, corpus: Corpus | None, *, seed: int
    ) -> list[Pretrainings]:
        """Group the training runs by their share of the text, starting with the full text."""
        shares: dict[float, list[PretrainingRecipe]] = {}
        for recipe in self.recipes:
            _, share = find_share(recipe.variant) or (recipe.variant, 1.0)
            shares.setdefault(share, []).append(recipe)
        groups = []
        for share in sorted(shares, reverse=True):
            text = self.text
            if share < 1:
                reporter.log(f"encoding {share:g} of the training text")
                division = split_documents(data, seed, corpus)
                text = share_text(text, division.parts, self.tokenizer, share, seed)
                check_length(shares[share][0], text)
            groups.append(replace(self, trainings=list_trainings(shares[share], self.seeds), text=text))
        return groups

    def find_models(self, folder: Path) -> dict[str, Path]:
        return {each.label: folder / each.folder / MODEL for each in self.trainings}

    def training_config(self, training: FolderTraining[PretrainingRecipe]) -> dict[str, Any]:
        return training_config(self.tokenizer, self.text, training.recipe, training.seed)

    def train(self, training: FolderTraining[PretrainingRecipe], folder: Path, progress: Progress) -> TrainingRecord:
        return pretrain(
            self.tokenizer,
            self.text,
            training.recipe,
            training.seed,
            folder,
            progress=progress,
            arguments=self.arguments,
        )

    def trial(self, recipe: PretrainingRecipe, folder: Path, quiet: Mapping[str, Any]) -> Any:
        given = {**self.arguments, **quiet}
        return trainer_of(self.tokenizer, self.text, replace(recipe, seconds=None), 0, folder, arguments=given)

    def length(self, recipe: PretrainingRecipe) -> int:
        """Return the number of steps, which is an upper bound if the recipe sets `seconds`."""
        return recipe.steps

    def remaining(self, folder: Path, run: Run | None) -> Remaining | None:
        due = self.due(folder)
        if due and due[0].recipe.seconds is not None:
            return Remaining(len(due), "training runs")
        return super().remaining(folder, run)

    @staticmethod
    def outcome(record: TrainingRecord) -> str:
        losses = record.validation_losses
        return f", validation loss {losses[0]:.3f} to {losses[-1]:.3f}" if losses else ""

    def manifest(self, seed: int) -> Manifest:
        recipe, text = self.recipes[0], self.text
        content = json.dumps([recipe.size, sorted(self.tokenizer.get_vocab().items())])
        return Manifest(
            model=f"elc-{recipe.size}",
            revision=None,
            weight_hash=hashlib.sha256(content.encode()).hexdigest(),
            dtype="float32",
            device=self.device,
            corpus=text.name,
            corpus_hash=text.digest,
            documents=len(text.test),
            tokens=text.test.tokens,
            window=recipe.lengths[0],
            families=(FAMILY,),
            tasks=(),
            seed=seed,
            layers="encoder.layers",
            numerics=read_numerics(self.device, None, **training_settings(self.arguments)),
            hardware=read_hardware(self.device),
        )

    def shared_recipe(self) -> dict[str, object]:
        options = asdict(self.recipes[0])
        for name in ("variant", "architecture", "initialization", "frozen_layer_weights"):
            del options[name]
        return shared_recipe(options, self.arguments)

    def describe(self) -> Iterator[str]:
        text, recipe = self.text, self.recipes[0]
        skipped = f"; {len(text.skipped):,} without words were skipped" if text.skipped else ""
        yield (
            f"{text.name}: {len(text.train):,} documents for training, {len(text.validation):,} for "
            f"validation, {len(text.test):,} for the report{skipped}"
        )
        yield f"{text.train.tokens:,} training tokens, vocabulary size {len(self.tokenizer):,}"
        variants = ", ".join(each.variant for each in self.recipes)
        length = f"{recipe.seconds:,.0f} seconds" if recipe.seconds else f"{recipe.steps:,} steps"
        yield f"{variants}; {self.seeds} seed{'s' * (self.seeds != 1)} each, {length}"
        trainings = self.seeds * len(self.recipes)
        if recipe.seconds:
            yield f"cost: {trainings} training runs, {format_duration(trainings * recipe.seconds)} in total"
        else:
            tokens = count_tokens(recipe)
            yield f"cost: {trainings} training runs of at most {tokens:,} tokens, {trainings * tokens:,} in total"


def list_trainings(recipes: Iterable[PretrainingRecipe], seeds: int) -> list[FolderTraining[PretrainingRecipe]]:
    recipes = tuple(recipes)
    return [FolderTraining.of(recipe, seed) for seed in range(seeds) for recipe in recipes]


def check_length(recipe: PretrainingRecipe, text: PretrainingText) -> None:
    """Raise `TrainError` if the text is smaller than a batch."""
    recipe.phases([len(cut_segments(text.train, length)) for length in recipe.lengths])


def count_tokens(recipe: PretrainingRecipe) -> int:
    """Return the number of tokens of a training run if all segments are full, which is an upper bound.

    >>> from layerwise.train.pretrain.recipe import pretraining_recipe
    >>> count_tokens(pretraining_recipe("tiny", "elc", steps=10))
    5120
    """
    short, long = recipe.lengths
    return recipe.switch * recipe.batch_size * short + (recipe.steps - recipe.switch) * (recipe.batch_size // 4) * long


def prepare_pretrainings(
    recipes: tuple[PretrainingRecipe, ...],
    data: TrainingData,
    reporter: Reporter,
    corpus: Corpus | None,
    *,
    seeds: int,
    seed: int,
    tokenizer: str | None,
    device: str,
    arguments: Mapping[str, Any],
    epochs: float | None = None,
) -> Pretrainings:
    """Tokenize the text with the given tokenizer, or with one learned from it. `epochs` replaces the steps if given."""
    reporter.log("loading torch")
    quiet_transformers()
    check_arguments(arguments)
    vocabulary: PreTrainedTokenizerBase | Vocabulary = Vocabulary(recipes[0].vocabulary)
    if tokenizer is not None:
        vocabulary = load_tokenizer(tokenizer)
        check_tokenizer(vocabulary, tokenizer)
    tokenized = open_text(
        make_text_source(data, seed, corpus), vocabulary, log=reporter.log, progress=reporter.progress
    )
    for note in tokenized.notes:
        reporter.log(f"note: {note}")
    text = tokenized.text
    if epochs is not None:
        count = len(cut_segments(text.train, recipes[0].lengths[0]))
        recipes = tuple(replace(each, steps=max(1, math.ceil(epochs * count / each.batch_size))) for each in recipes)
    check_length(recipes[0], text)
    trainings = list_trainings(recipes, seeds)
    return Pretrainings(trainings, tokenized.tokenizer, text, str(resolve_device(device)), arguments)
