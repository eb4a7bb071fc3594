"""Division of documents into training, validation and test splits.

Documents with the same text are in the same split. If a share of the training text is held out, documents with more
than a twentieth of the text are first cut into chunks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from layerwise.data.splits import SPLITS, split_stratified
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document, split_chunks
from layerwise.errors import DataError

SHARES = (0.8, 0.1, 0.1)
"""Fractions of documents for training, validation and testing."""

LARGE = 0.05
"""Documents with more than this fraction of the text (half of what is held out) are cut into chunks."""

_SHARED = ""

Documents = tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """Disjoint documents of a text by split (`SPLITS`). `notes` report which documents were removed or divided."""

    name: str
    parts: dict[str, Documents] = field(repr=False)
    notes: tuple[str, ...] = ()


def divide_documents(
    corpus: Corpus, validation: Corpus | None = None, test: Corpus | None = None, *, seed: int = 0
) -> Division:
    """Divide a corpus into training, validation and test documents.

    Validation and test documents are given, or drawn from the corpus with `seed`. They are removed from the training
    documents, and test documents from the validation documents. Raises `DataError` if there are fewer distinct
    documents than splits, or if a split is empty.
    """
    notes: list[str] = []
    if validation is not None and test is not None:
        validation = _without(
            validation, test, "of the validation text are also in the test text, and only used for testing", notes
        )
    train = corpus
    for held_out in (validation, test):
        if held_out is not None:
            train = _without(
                train, held_out, "of the training text are also in the held-out text, and not used for training", notes
            )
    parts = dict(zip(SPLITS, _parts(train, validation, test, seed, notes), strict=True))
    return Division(corpus.name, parts, tuple(notes))


def _parts(
    train: Corpus, validation: Corpus | None, test: Corpus | None, seed: int, notes: list[str]
) -> tuple[Documents, Documents, Documents]:
    given = [None if each is None else split_documents(each) for each in (validation, test)]
    match given:
        case [Corpus() as validation, Corpus() as test]:
            return train.documents, _separate(validation.documents), _separate(test.documents)
        case [Corpus() as validation, _]:
            notes.append(f"one half of {validation.name} is used for validation, the other half for testing")
            first, second = divide_corpus(validation, (0.5, 0.5), seed)
            return train.documents, _separate(first), _separate(second)
        case [_, Corpus() as test]:
            remaining, first = divide_corpus(split_documents(train), (1 - SHARES[1], SHARES[1]), seed)
            return remaining, _separate(first), _separate(test.documents)
    remaining, first, second = divide_corpus(split_documents(train), SHARES, seed)
    return remaining, _separate(first), _separate(second)


def split_documents(corpus: Corpus) -> Corpus:
    total = sum(len(each.text) for each in corpus.documents)
    documents: list[Document] = []
    for document in corpus.documents:
        is_large = document.part_of is None and len(document.text) > LARGE * total
        documents += split_chunks(document) if is_large else (document,)
    return Corpus(corpus.name, tuple(documents))


def divide_corpus(corpus: Corpus, shares: Sequence[float], seed: int) -> list[Documents]:
    """Divide documents into one part per share, drawn from `seed` and stratified by task. Equal texts stay together.

    If a text has fewer chunks than there are parts, its chunks stay together in the first part, unless the other
    documents and chunks are fewer than the parts.
    Raises `DataError` if there are fewer distinct documents than parts.
    """
    same: dict[str, list[Document]] = defaultdict(list)
    for document in corpus.documents:
        same[document.text].append(document)
    groups = list(same.values())
    if len(groups) < len(shares):
        raise DataError(
            f"{corpus.name!r} must have at least {len(shares)} distinct documents, got {len(groups)}. Pass more files, "
            "separate documents by lines that read <|endoftext|>, or pass held-out text with --validation and --test."
        )
    firsts = [group[0] for group in groups]
    names = [each.task if each.part_of is None else f"{each.task}/{each.part_of}" for each in firsts]
    counts = Counter(names)
    ample = [
        index for index, group in enumerate(groups) if group[0].part_of is None or counts[names[index]] >= len(shares)
    ]
    drawn = ample if len(ample) >= len(shares) else list(range(len(groups)))
    cut = split_stratified(_strata([names[index] for index in drawn], len(shares)), shares, seed)
    number_of = {groups[drawn[index]][0].text: number for number, part in enumerate(cut) for index in part}
    parts: list[list[Document]] = [[] for _ in shares]
    for document in corpus.documents:  # in order, so that chunks can be joined again
        parts[number_of.get(document.text, 0)].append(document)
    return [tuple(part) for part in parts]


def _strata(tasks: Iterable[str], parts: int) -> list[str]:
    tasks = list(tasks)
    counts = Counter(tasks)
    rare = {task for task, count in counts.items() if count < parts}
    while rare and sum(counts[task] for task in rare) < parts:
        rare.add(min((task for task in counts if task not in rare), key=lambda task: (counts[task], task)))
    return [_SHARED if task in rare else task for task in tasks]


def _without(corpus: Corpus, others: Corpus, reason: str, notes: list[str]) -> Corpus:
    excluded = {each.text for each in others.documents}
    remaining = tuple(each for each in corpus.documents if each.text not in excluded)
    removed = len(corpus.documents) - len(remaining)
    if not remaining:
        raise DataError(f"All {removed} document(s) {reason}. Pass texts that do not contain each other.")
    if removed:
        notes.append(f"{removed:,} document(s) {reason}")
    return Corpus(corpus.name, remaining)


def _separate(documents: Documents) -> Documents:
    return tuple(replace(each, part_of=None) for each in documents)
