"""Sets of sentences: all of one size, and no document in two clusters."""

from __future__ import annotations

from collections import defaultdict

import pytest

from layerwise.data.text.corpus import Corpus
from layerwise.data.text.sentence_sets import DOCUMENTS, SIZE, sentence_windows
from layerwise.errors import DataError
from tiny_tokenizers import word_tokenizer

NAMES = [f"w{number}" for number in range(64)]
TOKENIZER = word_tokenizer([*NAMES, "sees", "the", "fox."])


def corpus(documents: int, each: int) -> Corpus:
    """Documents whose sentences have a word of their own, under a heading."""
    return Corpus.of(
        [
            "\n".join(["A title", *(f"A {NAMES[number]} sees the fox." for _ in range(each))])
            for number in range(documents)
        ]
    )


def owners(documents: int, each: int, limit: int | None = None) -> dict[str, list[int]]:
    """The document of every sentence, by cluster."""
    first = TOKENIZER.convert_tokens_to_ids(NAMES[0])
    found = defaultdict(list)
    for window in sentence_windows(corpus(documents, each), TOKENIZER, 16, limit, 0):
        found[window.document].append(window.ids[2] - first)
        assert window.scored == 1
    return found


def test_a_set_holds_sentences_of_several_documents_and_no_document_is_in_two_clusters() -> None:
    found = owners(40, 20)
    assert len(found) == 40 // DOCUMENTS
    for members in found.values():
        assert len(members) == 2 * SIZE
        assert len(set(members[:SIZE])) == DOCUMENTS
    each = [set(members) for members in found.values()]
    assert sum(map(len, each)) == len(set().union(*each))


def test_few_documents_make_clusters_of_runs_of_their_sentences() -> None:
    assert sum(map(len, owners(2, 128).values())) == 2 * 128
    assert len(owners(2, 128)) == 8


def test_short_documents_fill_a_set_together() -> None:
    assert all(len(members) == SIZE for members in owners(40, 3).values())


def test_a_limit_reads_one_set_of_every_cluster_before_a_second_one() -> None:
    assert [len(members) for members in owners(40, 20, 10 * SIZE).values()] == [SIZE] * 10
    assert sum(map(len, owners(40, 20, 3 * SIZE + 5).values())) == 3 * SIZE


@pytest.mark.parametrize(
    ("documents", "each", "limit", "said"), [(2, 8, None, "give a longer text"), (40, 20, 31, "--tokens 32 or more")]
)
def test_less_than_a_set_is_refused(documents: int, each: int, limit: int | None, said: str) -> None:
    with pytest.raises(DataError, match=said):
        owners(documents, each, limit)
