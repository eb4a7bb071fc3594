"""BabyLM's corpora cleaned: each by its own rule, no word lost, and a text of another kind refused."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from data import babylm
from layerwise.data.text.babylm_cleaning import CLEANERS, cleaned, speech, treebank
from layerwise.data.text.corpus import Corpus, babylm_domain, read_corpus
from layerwise.data.text.documents import Document
from layerwise.errors import DataError


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", re.sub(r"^(\*[A-Z]+:|[A-Z]:|= = =.*|\*\*\*.*)", "", text, flags=re.MULTILINE).lower())


def test_every_layout_of_babylm_keeps_its_words(tmp_path: Path) -> None:
    """What is taken off is notation: of each corpus the same words are left, in the same order."""
    corpus = read_corpus(babylm.write(tmp_path)["train"])
    assert {each.task for each in corpus.documents} == set(babylm.LAYOUTS) <= set(CLEANERS)
    after = cleaned(corpus)
    assert [each.id for each in after.documents] == [each.id for each in corpus.documents]
    for before, each in zip(corpus.documents, after.documents, strict=True):
        text = re.sub(r"^\*\*\*.*", "", each.text, flags=re.MULTILINE)
        assert words(text) == words(before.text), each.id
        assert "  " not in each.text


@pytest.mark.parametrize("suffix", [".train", ".train.txt", ".train.gz", ".train.txt.gz"])
def test_a_file_is_known_by_its_name_however_it_is_packed(tmp_path: Path, suffix: str) -> None:
    text = "*MOT: look at that .\n*CHI: no !\n" * 200
    path = tmp_path / f"childes{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith(".gz") else text.encode())
    corpus = read_corpus(tmp_path)
    assert len(corpus.documents) > 10
    assert {each.task for each in corpus.documents} == {"childes"} == {babylm_domain(path.name)}
    assert cleaned(corpus).documents[0].text.startswith('"Look at that."\n"No!"')


def test_speech_is_quoted_and_what_is_no_word_goes() -> None:
    assert speech('*CHI: [laughs]\n*MOT: "yes" , I did n\'t &=coughs see .') == "\"'yes', I didn't see.\""


def test_brackets_of_the_treebank() -> None:
    assert treebank("-LRB- see -RRB- `` this ''") == '(see) " this "'


def test_other_texts_are_refused() -> None:
    with pytest.raises(DataError, match="holds no file of BabyLM to clean"):
        cleaned(Corpus("notes", (Document("a", "words"),)))
