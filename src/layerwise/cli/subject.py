"""A model with a learned wiring, wherever it keeps it, and the held-out examples that it is asked on."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from layerwise.cli.course import manifest_of
from layerwise.cli.materials import DIGITS, Material
from layerwise.cli.model import hush, open_model
from layerwise.data.batches import IGNORED
from layerwise.data.corpus import read_corpus
from layerwise.data.documents import Document
from layerwise.data.segments import cut, digest_of, encode
from layerwise.data.span_masking import FixedMasks, Padding, SpanMasking
from layerwise.data.splits import Splits, digest
from layerwise.errors import DataError, ModelError, RunError
from layerwise.measure.edges import Ask, Wired
from layerwise.measure.held_out import HeldOut
from layerwise.measure.provenance import described
from layerwise.models.elc.encoder import ElcPreTrainedModel
from layerwise.models.elc.wiring import ElcWiring
from layerwise.results import Manifest
from layerwise.results.pedigree import Pedigree
from layerwise.results.units import FEWEST_UNITS
from layerwise.stack import Stack, weight_hash
from layerwise.stack.load import EMBEDDED
from layerwise.train.trained import open_trained

FAMILY = "wiring"
"""What the manifest of a single model's edges calls itself."""

MASKED_LENGTH = 128
"""Tokens in a segment with words to fill in, unless `--length` says otherwise."""

SEGMENTS = 256
"""Such segments in each half, spread over its documents, unless `--limit` says otherwise: each edge reads them all."""

HOW = (
    "train some into a model with `layerwise train wiring-identity --model MODEL`, or give an ELC-BERT other than the "
    "variant ltg"
)
"""How a model comes by layer weights."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A model with a learned wiring: what its rows are called, where it lies, and its weights as a `Wired`."""

    label: str
    folder: Path
    stack: Stack
    wired: Wired
    pedigree: Pedigree | None


def has_wiring(folder: Path) -> bool:
    """Whether the model in `folder` has layer weights, as far as its files tell."""
    if _is_elc(folder):
        return _config(folder).get("variant") != "ltg"
    pedigree = Pedigree.read(folder)
    return pedigree is not None and pedigree.recipe.get("variant") == "wiring"


def open_subject(folder: Path, label: str, *, device: str, dtype: str) -> Subject:
    """The model in `folder` with its wiring. Raises `ModelError` for a model without one."""
    if not has_wiring(folder):
        raise ModelError(f"{folder} has no learned layer weights; {HOW}")
    hush()
    pedigree = Pedigree.read(folder)
    if _is_elc(folder):
        stack = open_model(str(folder), None, None, device, dtype, None, False)
        assert isinstance(stack.model, ElcPreTrainedModel)
        return Subject(label, folder, stack, ElcWiring(stack.model), pedigree)
    trained = open_trained(folder, device=device, dtype=dtype)
    assert trained.wiring is not None, "a pedigree that tells of a wiring is one of a model that has it"
    return Subject(label, folder, trained.stack, trained.wiring, pedigree)


def examples_of(subject: Subject, material: Material, *, quiet: bool) -> tuple[Ask, Ask, Manifest]:
    """Who chooses edges, who judges what is left, and what both are of.

    Raises `RunError` where the examples are not those that the model's training held out, and `DataError` where there
    are none.
    """
    stack = subject.stack
    if type(stack.model).__name__.endswith("ForMaskedLM"):
        return _masked(subject, material)
    known = subject.pedigree.data_name if subject.pedigree is not None else None
    if material.images is None and material.text is None:
        if known == DIGITS:
            material = replace(material, images=DIGITS)
        elif known in EMBEDDED:
            stack.source = replace(stack.source, name=str(known))
    splits = material.splits(stack, str(subject.folder), quiet=quiet)
    if subject.pedigree is not None and subject.pedigree.data != splits.digest:
        raise _learned(
            subject, subject.pedigree, splits.name, "--images or --text (--validation, --test), --limit and --seed"
        )
    choosing, judging = (_kept(part, splits) for part in (splits.validation, splits.test))
    manifest = manifest_of(stack, weight_hash(stack.model), splits)
    return lambda: choosing.ask(stack), lambda: judging.ask(stack), manifest


def _masked(subject: Subject, material: Material) -> tuple[Ask, Ask, Manifest]:
    """Tokens to fill in: in the documents that the training held out, or of a stranger in halves of a text."""
    stack = subject.stack
    if stack.tokenizer is None:
        raise DataError(f"{subject.folder} has no tokenizer beside it, so it cannot read text")
    name, content, parts = _documents(subject, material)
    halves = [_fill_ins(stack, part, material) for part in parts]
    manifest = described(
        stack, weight_hash(stack.model), corpus=name, corpus_hash=content, documents=sum(map(len, parts)),
        tokens=sum(map(_scored, halves)), window=material.length or MASKED_LENGTH, families=(FAMILY,), tasks=(), seed=0,
        command=tuple(sys.argv),
    )  # fmt: skip
    return lambda: halves[0].ask(stack), lambda: halves[1].ask(stack), manifest


def _documents(subject: Subject, material: Material) -> tuple[str, str, list[Sequence[Document]]]:
    """The name and the digest of a text, the documents that choose, and those that judge."""
    text = material.text
    if subject.pedigree is not None:
        name, divided = material.corpora.divided()
        parts = divided.parts
        found = digest_of(parts)
        if subject.pedigree.data != found:
            raise _learned(subject, subject.pedigree, name, "--text, --validation, --test and --seed")
        return name, found, [parts["validation"], parts["test"]]
    if material.validation is not None or material.test is not None:
        raise DataError(
            f"{subject.folder} has no record of a training that --validation or --test could have been held out of: "
            "leave them out, and give a text that it was not trained on as --text"
        )
    if text is None:
        raise DataError("a text that the model was not trained on is needed: --text FILE_OR_FOLDER")
    corpus = read_corpus(text)
    count = len(corpus.documents)
    if count < 2 * FEWEST_UNITS:
        raise DataError(
            f"{text} holds {count} document(s); edges are chosen on one half and judged on the other, and an interval "
            f"needs {FEWEST_UNITS} in each: give {2 * FEWEST_UNITS} or more"
        )
    content = digest((str(place % 2), "", each.text.encode()) for place, each in enumerate(corpus.documents))
    return corpus.name, content, [corpus.documents[start::2] for start in (0, 1)]


def _fill_ins(stack: Stack, documents: Sequence[Document], material: Material) -> HeldOut:
    tokenizer = stack.tokenizer
    assert tokenizer is not None, "it was asked for above"
    segments = cut(encode(tokenizer, documents), material.length or MASKED_LENGTH)
    masks = FixedMasks(segments, SpanMasking.of(tokenizer), tokenizer, material.limit or SEGMENTS)
    padding = Padding(int(tokenizer.pad_token_id))
    return HeldOut.of(masks, padding, owners=masks.owners.tolist(), filled_in=True)


def _kept(examples: object, splits: Splits) -> HeldOut:
    windows = getattr(examples, "windows", None)
    owners = None if windows is None else [(window.task, window.document) for window in windows]
    return HeldOut.of(examples, splits.collate, owners=owners)


def _learned(subject: Subject, pedigree: Pedigree, name: str, options: str) -> RunError:
    return RunError(
        f"{subject.folder} was trained on {pedigree.data_name} with other splits than these ({name}), so its edges "
        f"would be judged on examples that it learned from. Give the {options} of its training"
    )


def _scored(held_out: HeldOut) -> int:
    return sum(int((batch["labels"] != IGNORED).sum()) for batch in held_out.batches)


def _is_elc(folder: Path) -> bool:
    return _config(folder).get("model_type") == "layerwise-elc"


def _config(folder: Path) -> dict[str, object]:
    path = folder / "config.json"
    found: dict[str, object] = json.loads(path.read_text()) if path.is_file() else {}
    return found
