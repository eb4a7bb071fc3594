"""Models with learned layer weights, wherever they keep them, and the examples that their edges are judged on.

A model keeps its layer weights in a wiring that was attached to it (`layerwise train robust wiring-identity`) or in its
own architecture (ELC-BERT); both are opened alike. Examples are held out of the training of the model, in two parts:
edges are chosen on one and evaluated on the other.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch.utils.data import Subset

from layerwise.data.batches import IGNORED
from layerwise.data.model_location import EMBEDDED
from layerwise.data.splits import Splits, digest, sample
from layerwise.data.stored_files import CONFIG, read_config
from layerwise.data.text.corpus import Corpus, read_corpus
from layerwise.data.text.documents import Document
from layerwise.data.text.encoding import encode
from layerwise.data.text.segments import cut, digest_of
from layerwise.data.text.span_masking import ALGORITHM, FixedMasks, SpanMasking, padding
from layerwise.errors import DataError, ModelError, RunError
from layerwise.experiments.diagnosis.config import LayerWeightAnalysis
from layerwise.experiments.opening import described, quiet_transformers
from layerwise.experiments.reporter import Reporter
from layerwise.experiments.training_runs import DIGITS, TrainedModel, divided_documents, finished_models, read_splits
from layerwise.measure.interventions.accuracy import HeldOut
from layerwise.measure.interventions.edge_pruning import LossEvaluation, Wired, wired_as
from layerwise.models.elc.encoder import ElcPreTrainedModel
from layerwise.models.elc.wiring import ElcWiring
from layerwise.plan import LayerWeights
from layerwise.results import Manifest
from layerwise.results.training_record import TrainingRecord
from layerwise.results.vocabulary import FEWEST_UNITS
from layerwise.stack import Stack, load, weight_hash
from layerwise.train.load_trained import open_trained

ORIGIN = (
    "train some into a model with `layerwise train robust wiring-identity --model MODEL`, or give an ELC-BERT other "
    "than the variant ltg"
)
"""How a model comes by layer weights."""


@dataclass(frozen=True, slots=True)
class WeightedModel:
    """A model with learned layer weights: its arm and seed, where it lies, and its weights as a `Wired`."""

    arm: str
    seed: int | None
    folder: Path
    stack: Stack
    wired: Wired
    record: TrainingRecord | None


def has_layer_weights(folder: Path) -> bool:
    """Whether the model in `folder` has layer weights, as far as its files say."""
    if _is_elc(folder):
        return read_config(folder).get("variant") != "ltg"
    record = TrainingRecord.read(folder)
    return record is not None and record.recipe.get("variant") == "wiring"


def weighted_models(run: Path) -> dict[str, TrainedModel]:
    """The finished models with layer weights in a run, by label. Raises `RunError` where there is none."""
    models = {each.label: each for each in finished_models(run) if has_layer_weights(each.folder)}
    if not models:
        raise RunError(f"{run} holds no finished model with learned layer weights; {ORIGIN}")
    return models


def open_weighted(folder: Path, *, device: str, dtype: str) -> WeightedModel:
    """The model in `folder` with its layer weights; one without a record of a training goes by the folder's name.

    Raises `ModelError` for a model without layer weights, and where there is none.
    """
    if not folder.is_dir():
        raise ModelError(f"there is no folder {folder}; {ORIGIN}")
    if not has_layer_weights(folder):
        raise ModelError(f"{folder} has no learned layer weights; {ORIGIN}")
    quiet_transformers()
    record = TrainingRecord.read(folder)
    arm, seed = (folder.name, None) if record is None else (record.arm, record.seed)
    if _is_elc(folder):
        stack = load(str(folder), device=device, dtype=dtype)
        assert isinstance(stack.model, ElcPreTrainedModel)
        return WeightedModel(arm, seed, folder, stack, ElcWiring(stack.model), record)
    trained = open_trained(folder, device=device, dtype=dtype)
    assert trained.wiring is not None, "its record names a wiring"
    return WeightedModel(arm, seed, folder, trained.stack, trained.wiring, record)


def _is_elc(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and read_config(folder).get("model_type") == "layerwise-elc"


EDGES = "edges.json"
"""The edges that are left, beside the weights of a model that was cut."""


def write_sparse(model: WeightedModel, edges: LayerWeights, output: Path) -> str:
    """Write the edges to a `.json` file, or the model with these edges alone to a folder; returns what was written.

    The folder is opened again and compared. Raises `ModelError` where it holds other edges.
    """
    if output.suffix == ".json":
        output.write_text(edges.to_json())
        return f"{output}: {len(edges)} edges"
    module: Any = model.stack.model
    ignored = shutil.ignore_patterns("*.safetensors*", "survey-*")
    shutil.copytree(model.folder, output, dirs_exist_ok=True, ignore=ignored)
    with wired_as(model.wired, edges):
        module.save_pretrained(output)
    (output / EDGES).write_text(edges.to_json())
    dtype = str(model.stack.dtype).removeprefix("torch.")
    again = open_weighted(output, device=model.stack.device.type, dtype=dtype)
    if set(again.wired.edges()) != set(edges):
        raise ModelError(f"{output} does not hold the edges that were written to it; write them elsewhere")
    return f"{output}: {len(edges)} edges, {edges.live_states()} live states; opened again and compared"


FAMILY = "layer-weights"
"""What the manifest of a single model's edges calls itself."""

MASKED_LENGTH = 128
"""Tokens in a segment of masked text, unless `--max-length` says otherwise."""

SEGMENTS = 256
"""Such segments in each half, spread over its documents, unless `--limit` says otherwise: each edge reads them all."""


@dataclass(frozen=True, slots=True)
class EdgeExamples:
    """What edges are chosen on, what the edges that are left are evaluated on, and the manifest of both."""

    choosing: LossEvaluation
    evaluation: LossEvaluation
    manifest: Manifest


def examples_of(
    model: WeightedModel, config: LayerWeightAnalysis, reporter: Reporter, corpus: Corpus | None = None
) -> EdgeExamples:
    """The examples that the options name, or those of the model's training.

    Raises `RunError` where the examples are not those that the model's training held out, and `DataError` where there
    are none.
    """
    stack = model.stack
    if type(stack.model).__name__.endswith("ForMaskedLM"):
        return _masked(model, config, corpus)
    known = model.record.data_name if model.record is not None else None
    if config.images is None and config.text is None and corpus is None:
        if known == DIGITS:
            config = replace(config, images=DIGITS)
        elif known in EMBEDDED:
            stack.source = replace(stack.source, name=str(known))
    splits = read_splits(config, stack, str(model.folder), reporter, seed=config.seed, corpus=corpus)
    if model.record is not None and model.record.data != splits.digest:
        options = "--images or --text (--validation, --test), --limit, --select-on and --seed"
        raise _learned(model, model.record, splits.name, options)
    choosing, evaluation = (_held_out(part, splits) for part in (_choosing(splits, config.seed), splits.test))
    manifest = described(
        stack,
        weight_hash(stack.model),
        corpus=splits.name,
        corpus_hash=splits.digest,
        documents=len(splits.test),
        tokens=len(splits.test),
        window=1,
        families=(FAMILY,),
        tasks=(),
        seed=config.seed,
    )
    return EdgeExamples(lambda: choosing.evaluate(stack), lambda: evaluation.evaluate(stack), manifest)


def _masked(model: WeightedModel, config: LayerWeightAnalysis, corpus: Corpus | None) -> EdgeExamples:
    """Masked tokens: in the documents that the training held out, or in two halves of a text without a training."""
    stack = model.stack
    if stack.tokenizer is None:
        raise DataError(f"{model.folder} has no tokenizer beside it, so it cannot read text")
    name, content, parts = _documents(model, config, corpus)
    choosing, evaluation = (_masked_segments(stack, part, config) for part in parts)
    manifest = described(
        stack,
        weight_hash(stack.model),
        corpus=name,
        corpus_hash=content,
        documents=sum(map(len, parts)),
        tokens=_scored(choosing) + _scored(evaluation),
        window=config.max_length or MASKED_LENGTH,
        families=(FAMILY,),
        tasks=(),
        seed=config.seed,
        settings={"masking": ALGORITHM},
    )
    return EdgeExamples(lambda: choosing.evaluate(stack), lambda: evaluation.evaluate(stack), manifest)


def _documents(
    model: WeightedModel, config: LayerWeightAnalysis, corpus: Corpus | None
) -> tuple[str, str, list[Sequence[Document]]]:
    """The name and the digest of a text, the documents that choose, and those that judge."""
    if model.record is not None:
        name, division = divided_documents(config, config.seed, corpus)
        content = digest_of(division.parts)
        if model.record.data != content:
            raise _learned(model, model.record, name, "--text, --validation, --test and --seed")
        return name, content, [division.parts["validation"], division.parts["test"]]
    if config.validation is not None or config.test is not None:
        raise DataError(
            f"{model.folder} has no record of a training that --validation or --test could have been held out of: "
            "leave them out, and give a text that it was not trained on as --text"
        )
    if config.text is None and corpus is None:
        raise DataError("a text that the model was not trained on is needed: --text FILE_OR_FOLDER")
    if corpus is None:
        assert config.text is not None
        corpus = read_corpus(config.text)
    count = len(corpus.documents)
    if count < 2 * FEWEST_UNITS:
        raise DataError(
            f"{corpus.name} holds {count} document(s); edges are chosen on one half and evaluated on the other, and an "
            f"interval needs {FEWEST_UNITS} in each: give {2 * FEWEST_UNITS} or more"
        )
    content = digest((str(index % 2), "", each.text.encode()) for index, each in enumerate(corpus.documents))
    return corpus.name, content, [corpus.documents[start::2] for start in (0, 1)]


def _masked_segments(stack: Stack, documents: Sequence[Document], config: LayerWeightAnalysis) -> HeldOut:
    tokenizer = stack.tokenizer
    assert tokenizer is not None, "it is checked above"
    segments = cut(encode(tokenizer, documents), config.max_length or MASKED_LENGTH)
    masks = FixedMasks(segments, SpanMasking.of(tokenizer), tokenizer, config.limit or SEGMENTS)
    return HeldOut.of(masks, padding(int(tokenizer.pad_token_id)), owners=masks.owners.tolist(), filled_in=True)


def _choosing(splits: Splits, seed: int) -> object:
    """The examples that choose edges: those that selected the checkpoint, unless they are reported."""
    if not splits.selects_on_reported:
        return splits.validation
    return Subset(splits.train, sample(splits.train, len(splits.test), seed))


def _held_out(examples: object, splits: Splits) -> HeldOut:
    windows = getattr(examples, "windows", None)
    owners = None if windows is None else [(window.task, window.document) for window in windows]
    return HeldOut.of(examples, splits.collate, owners=owners)


def _learned(model: WeightedModel, record: TrainingRecord, name: str, options: str) -> RunError:
    return RunError(
        f"{model.folder} was trained on {record.data_name} with other splits than these ({name}), so its edges would "
        f"be evaluated on examples that it learned from. Give the {options} of its training"
    )


def _scored(held_out: HeldOut) -> int:
    return sum(int((batch["labels"] != IGNORED).sum()) for batch in held_out.batches)
