"""BabyLM's corpora cleaned: each by its own rules, on lines written for them; a text of another kind is refused."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
import sacremoses  # noqa: F401  # half a second, which no test should wait for

from data import babylm
from layerwise.data.text.babylm_cleaning import CLEANERS, cleaned, cleaned_text
from layerwise.data.text.corpus import Corpus, babylm_domain, read_corpus
from layerwise.data.text.documents import Document
from layerwise.errors import DataError

STUB = "Ay is a village in the north."
LONG_STUB = f"{STUB} {'It is old and has a long history. ' * 4}".strip()

CASES = {
    "aochildes": [
        ("you  want it ?\nno .\nno .\nno .\n", '"You want it?"\n"No."\n'),
        ("do n't touch .\n\nyes\n", '"Don\'t touch."\n\n"Yes"\n'),
        ("[pointing] look\n", '"[pointing] look"\n'),
        ('"a" is a letter\n', '""a" is a letter"\n'),
    ],
    "childes": [
        ("*MOT:\tlook at [= the] dog . [points]\n*CHI: [laughs].\n*CHI: &=coughs yes\n", '"Look at dog."\n"Yes"\n'),
        ("*MOT: no .\n*CHI: no .\n\n*CHI: no .\n", '"No."\n\n"No."\n'),
    ],
    "bnc_spoken": [
        ("it 's 5 % ,I think\n.\n!\n?\n...\n", '"It\'s 5%, I think"\n"..."\n'),
        ("yes\nyes\n\nyes\n", '"Yes"\n\n"Yes"\n'),
        ("A: who is that\n", '"A: who is that"\n'),
    ],
    "cbt": [
        ("`` Come -LRB- he said -RRB- , '' said she .\n", '"Come (he said)," said she.\n'),
        ("-LCB- a -RCB- -LSB- b -RSB-\n\nlower case\nlower case\n", "{a} [b]\n\nlower case\nlower case\n"),
    ],
    "children_stories": [
        ("    Once  upon\na time\n   there\n", "\tOnce upon\na time\nthere\n"),
        ("Title\n\nOne .\nTwo\n\n\nThree\n", "Title\nOne .\nTwo\n\nThree\n"),
    ],
    "gutenberg": [
        ("CHAPTER I\n\n\nIt was\nlate .\n\nHe ran.\n", "CHAPTER I\nIt was late .\nHe ran.\n"),
        ("It was\nlate.\n\n\n\nHe ran\noff.\n", "It was late.\n\nHe ran off.\n"),
    ],
    "open_subtitles": [
        ("- yes .\n-no\n-no\n\n\nwell\n", '"yes ."\n"no"\n\n"well"\n'),
        ('he said:\n"go\ngo"\n', 'he said:\n"go\ngo"\n'),
        ("(sighs)\n[sighs]\n{sighs}\n(a (b) c)\n", "(sighs)\n[sighs]\n{sighs}\n(a (b) c)\n"),
        ("(sighs) oh (sighs)\n(oh]\n", '"(sighs) oh (sighs)"\n"(oh]"\n'),
    ],
    "qed": [
        ("- it &amp;amp; me\n0 &gt; 1\n", '"it & me"\n"0 > 1"\n'),
        ("&lt;i&gt;here&lt;/i&gt;\n&amp;amp;lt;b&amp;amp;gt;\n<i>so</i>\n", '"<i>so</i>"\n'),
        ("00:01 --&gt; 00:02\na -> b\n12:\n12 :\nJohn:\nend\nend\n", 'John:\n"end"\n'),
    ],
    "simple_wikipedia": [
        ("A cat[1] is[23] an animal .\nIt &amp;amp; we[a]\n\n\nNext\n", "A cat is an animal .\nIt & we[a]\n\nNext\n"),
        (f"One\n\n{STUB}\n\nTwo\n{STUB}\n{LONG_STUB}\n", f"One\n\nTwo\n{LONG_STUB}\n"),
        ("A is a commune. It is here.\nB is a commune found in C.\nB is a commune\n", "B is a commune\n"),
        ("D is a city in E.\nF is a municipality in G.\nH is a town in I.\nH is in I.\n", "H is in I.\n"),
    ],
    "simple_wiki": [("= = = Cat = = =\nA cat.\n= = = Dog = = =\nA dog.\n", "\nCat\nA cat.\n\nDog\nA dog.\n")],
    "switchboard": [
        ("- i do n't know ,\n-yeah\nyeah\n\nyeah\n(so)\n", '"i do n\'t know ,"\n"yeah"\n\n"yeah"\n"(so)"\n'),
        ("A: Yeah.\nB: Yeah.\nA:\nB: AB: so\n", '"Yeah."\n"AB: so"\n'),
    ],
    "wikipedia": [
        ("= = = Cat = = =\n\nA cat[1]  is\n\nan animal.\n", "\nCat\nA cat is\nan animal.\n"),
        ("[[Category:Cats]]\n[[File:Cat.png]]\nA [[Felis|small cat]].\n", "A Felis.\n"),
    ],
}
"""Lines of each corpus, and what they are to become."""


@pytest.mark.parametrize("name", CLEANERS)
def test_each_corpus_is_cleaned_by_its_own_rules(name: str) -> None:
    for before, after in CASES[name]:
        assert cleaned_text(name, before) == after


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", re.sub(r"^(\*[A-Z]+:|[A-Z]:)", "", text, flags=re.MULTILINE).lower())


def test_every_layout_of_babylm_keeps_its_words(tmp_path: Path) -> None:
    """What is taken off is notation: of each corpus the same words are left, in the same order."""
    corpus = read_corpus(babylm.write(tmp_path)["train"])
    assert {each.task for each in corpus.documents} == set(babylm.LAYOUTS) <= set(CLEANERS)
    after = cleaned(corpus)
    assert [each.id for each in after.documents] == [each.id for each in corpus.documents]
    for before, each in zip(corpus.documents, after.documents, strict=True):
        assert words(each.text) == words(before.text), each.id
        assert each.text.endswith("\n")  # the parts of a file are joined again
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


def test_other_texts_are_refused() -> None:
    with pytest.raises(DataError, match="holds no file of BabyLM to clean"):
        cleaned(Corpus("notes", (Document("a", "words"),)))
