"""Division: which documents train a model, and which are held out to validate and to report.

Documents are divided, not windows; those with the same text count as one. If a share of the training text is drawn, a
document with more than a twentieth of it is cut into chunks first. Separate held-out text is the stricter judge.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from layerwise.data.splits import SPLITS, stratified
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document, chunks
from layerwise.errors import DataError

SHARES = (0.8, 0.1, 0.1)
"""Of the documents: to train, to select, to report."""

LARGE = 0.05
"""A document with a larger share of the text is cut before a share is drawn: half of what is to be held out."""

_SHARED = ""

Documents = tuple[Document, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """The documents of a text by the names in `SPLITS`; no two parts share one. `notes` say how that was ensured."""

    name: str
    parts: dict[str, Documents] = field(repr=False)
    notes: tuple[str, ...] = ()


def division(
    corpus: Corpus, validation: Corpus | None = None, test: Corpus | None = None, *, seed: int = 0
) -> Division:
    """Return the corpus to train on and the held-out parts, drawn from `seed` or given.

    Held-out documents are left out of training, and reported ones out of validation; each is resampled by itself.
    Raises `DataError` for fewer different documents than parts, and if a part is empty.
    """
    notes: list[str] = []
    looked, reported = validation, test
    if looked is not None and reported is not None:
        looked = _without(looked, reported, "of the validation text are in the test text too, and only reported", notes)
    train = corpus
    for held_out in (looked, reported):
        if held_out is not None:
            train = _without(train, held_out, "of the training text are held out, and not trained on", notes)
    parts = dict(zip(SPLITS, _parts(train, looked, reported, seed, notes), strict=True))
    return Division(corpus.name, parts, tuple(notes))


def _parts(
    train: Corpus, looked: Corpus | None, reported: Corpus | None, seed: int, notes: list[str]
) -> tuple[Documents, Documents, Documents]:
    given = [None if each is None else in_chunks(each) for each in (looked, reported)]
    match given:
        case [Corpus() as looked, Corpus() as reported]:
            return train.documents, _apart(looked.documents), _apart(reported.documents)
        case [Corpus() as looked, _]:
            notes.append(f"one half of {looked.name} is looked at on the way, the other half is reported")
            first, second = divided(looked, (0.5, 0.5), seed)
            return train.documents, _apart(first), _apart(second)
        case [_, Corpus() as reported]:
            kept, first = divided(in_chunks(train), (1 - SHARES[1], SHARES[1]), seed)
            return kept, _apart(first), _apart(reported.documents)
    kept, first, second = divided(in_chunks(train), SHARES, seed)
    return kept, _apart(first), _apart(second)


def in_chunks(corpus: Corpus) -> Corpus:
    whole = sum(len(each.text) for each in corpus.documents)
    documents: list[Document] = []
    for document in corpus.documents:
        large = document.part_of is None and len(document.text) > LARGE * whole
        documents += chunks(document) if large else (document,)
    return Corpus(corpus.name, tuple(documents))


def divided(corpus: Corpus, shares: Sequence[float], seed: int) -> list[Documents]:
    """Divide documents by `shares`, drawn from `seed`; equal texts stay together, and each task has its share per part.

    A text with fewer chunks than parts is in the first part, if others remain to draw from. Raises `DataError` for
    fewer different documents than parts.
    """
    same: dict[str, list[Document]] = defaultdict(list)
    for document in corpus.documents:
        same[document.text].append(document)
    groups = list(same.values())
    if len(groups) < len(shares):
        raise DataError(
            f"{corpus.name!r} holds {len(groups)} different document(s), too few to train, select and report on "
            f"different ones: give at least {len(shares)} files, divide a text by lines that read <|endoftext|>, or "
            "name what is held out with --validation and --test"
        )
    firsts = [group[0] for group in groups]
    names = [each.task if each.part_of is None else f"{each.task}/{each.part_of}" for each in firsts]
    counts = Counter(names)
    ample = [
        index for index, group in enumerate(groups) if group[0].part_of is None or counts[names[index]] >= len(shares)
    ]
    drawn = ample if len(ample) >= len(shares) else list(range(len(groups)))
    cut = stratified(_strata([names[index] for index in drawn], len(shares)), shares, seed)
    number_of = {groups[drawn[index]][0].text: number for number, part in enumerate(cut) for index in part}
    parts: list[list[Document]] = [[] for _ in shares]
    for document in corpus.documents:  # in their order, so that parts of one text can be joined again
        parts[number_of.get(document.text, 0)].append(document)
    return [tuple(part) for part in parts]


def _strata(tasks: Iterable[str], parts: int) -> list[str]:
    tasks = list(tasks)
    counts = Counter(tasks)
    rare = {task for task, count in counts.items() if count < parts}
    while rare and sum(counts[task] for task in rare) < parts:
        rare.add(min((task for task in counts if task not in rare), key=lambda task: (counts[task], task)))
    return [_SHARED if task in rare else task for task in tasks]


def _without(corpus: Corpus, others: Corpus, why: str, notes: list[str]) -> Corpus:
    taken = {each.text for each in others.documents}
    kept = tuple(each for each in corpus.documents if each.text not in taken)
    left_out = len(corpus.documents) - len(kept)
    if not kept:
        raise DataError(f"all {left_out} document(s) {why}: give texts of which none is a part of another")
    if left_out:
        notes.append(f"{left_out:,} document(s) {why}")
    return Corpus(corpus.name, kept)


def _apart(documents: Documents) -> Documents:
    return tuple(replace(each, part_of=None) for each in documents)
