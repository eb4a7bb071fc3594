"""Cleaning of BabyLM's corpora, each as it needs: what ELC-BERT's authors did to them before training.

The rules are those of the scripts that the authors publish (Charpentier and Samuel 2023; github.com/ltgoslo/elc-bert,
folder `preprocess`), written anew. Every corpus is read line by line, with single spaces. `normalised` and `repaired`
are the two strengths of `layerwise.data.text.punctuation`.

    aochildes          normalised; capitalised, between double quotes; a line like the one before it dropped
    bnc_spoken         the same; lines that are one full stop, exclamation or question mark dropped
    cbt                normalised; the Penn Treebank's brackets (`-LRB-`) and quotes (``) written as signs
    children_stories   repaired; a line indented by four spaces or more begins with a tab
    gutenberg          repaired; the lines of a paragraph joined to one
    open_subtitles     repaired; a dash at the beginning taken off; between double quotes, unless the line has some,
                       introduces something or stands in brackets; a line like the one before it dropped
    qed                the same; entities resolved; badly parsed HTML, arrows of time stamps and names without a letter
                       dropped
    simple_wikipedia   repaired; entities resolved; references `[12]` taken off; stubs about places dropped
    switchboard        repaired; a dash taken off; between double quotes; a line like the one before it dropped
    wikipedia          repaired; references, categories and files dropped; a link is its target, a heading its title

Here it differs in these points:

- The authors write `[TAB]` before an indented line, a token of their vocabulary. No text spells a special token here,
  so the line begins with the character, which `layerwise.data.text.segments` reads as that token.
- They join all files and cut them to segments. Here documents are cleaned one by one and stay documents, so that the
  same text is held out of a training with cleaning as without. A line like the last one of the document before it is
  therefore kept, and what is counted from empty lines begins anew with each document.
- BabyLM of 2024 and 2025, which they did not have, has `childes` with speakers (`*MOT:`) and descriptions in brackets,
  `switchboard` with speakers (`A:`), and `simple_wiki` with headings. Our own rules take off the first two, since they
  are no words, with lines of which nothing is left, and treat headings as in `wikipedia`; the rest is as in the corpus
  of 2023.
- An empty line of `aochildes` stays empty, as in `bnc_spoken`.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from layerwise.data.text.corpus import Corpus
from layerwise.data.text.punctuation import normalised, repaired
from layerwise.errors import DataError

Cleaner = Callable[[Iterable[str]], Iterator[str]]
"""From the lines of a document as they are in the file to those of the cleaned one."""

_TREEBANK = {
    "-LRB-": "(",
    "-LCB-": "{",
    "-LSB-": "[",
    "-RRB-": ")",
    "-RCB-": "}",
    "-RSB-": "]",
    "`` ": '"',
    "``": '"',
    " ''": '"',
    "''": '"',
}
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
_ENTITIES = {"&gt;": ">", "&lt;": "<", "&amp;": "&"}
_STAGES = 3
"""So many times an entity of a subtitle may have been escaped."""

_REFERENCE = re.compile(r"\[\d+\]")
_LINK = re.compile(r"\[\[([^\[\]|]*)\|[^\[\]]*\]\]")
_HEADING = re.compile(r"^= = = (?P<title>.*?)(?: = = =)?$")
_NO_ARTICLE = ("[[Category:", "[[File:")
_STUB = (
    "is a commune. It is",
    "is a commune found",
    "is a city in",
    "is a village in",
    "is a municipality in",
    "is a town in",
)
_STUB_LENGTH = 128
_CHILD_NOTATION = re.compile(r"^\*[A-Z0-9]{2,4}:|\[[^\]]*\]+|&=\S+")
_CALLER = re.compile(r"^[A-Z]{1,2}:(?: |$)")


def cleaned(corpus: Corpus) -> Corpus:
    """The corpus with every document of one of BabyLM's corpora cleaned; those of which nothing is left are left out.

    The corpus of a document is its task, as files of BabyLM are read. Raises `DataError` for a text without any, and
    where ftfy or sacremoses is not installed.
    """
    known = {each.task for each in corpus.documents} & set(CLEANERS)
    if not known:
        raise DataError(
            f"{corpus.name} holds no file of BabyLM to clean: files are known by their names, such as childes.train "
            f"({', '.join(CLEANERS)}); leave --clean out, or give BabyLM's files"
        )
    documents = []
    for each in corpus.documents:
        text = cleaned_text(each.task, each.text) if each.task in CLEANERS else each.text
        if text.strip():
            documents.append(replace(each, text=text))
    return Corpus(corpus.name, tuple(documents))


def cleaned_text(name: str, text: str) -> str:
    """A document of the corpus `name`, one of `CLEANERS`, cleaned; it ends with a line end if it did.

    >>> cleaned_text("bnc_spoken", "well , I do n't know .\\n?\\n")
    '"Well, I don\\'t know."\\n'
    """
    lines = list(CLEANERS[name](text.removesuffix("\n").split("\n")))
    return "\n".join(lines) + ("\n" if lines and text.endswith("\n") else "")


def speech(lines: Iterable[str]) -> Iterator[str]:
    """Utterances, one a line."""
    spoken = (_quoted(normalised(line[0].upper() + line[1:])) if line else "" for line in map(_even, lines))
    return _unrepeated(spoken)


def conversations(lines: Iterable[str]) -> Iterator[str]:
    """Utterances, among them lines of a single sign."""
    return speech(line for line in lines if line.strip() not in (".", "!", "?"))


def childes(lines: Iterable[str]) -> Iterator[str]:
    """Utterances with the notation of CHILDES."""
    return speech(_without(_CHILD_NOTATION, lines))


def treebank(lines: Iterable[str]) -> Iterator[str]:
    """Text with the brackets and quotes of the Penn Treebank."""
    for line in map(_even, lines):
        for remnant, sign in _TREEBANK.items():
            line = line.replace(remnant, sign)
        yield normalised(line)


def stories(lines: Iterable[str]) -> Iterator[str]:
    """Text with indented lines; an empty line stays where it ends a paragraph of more than one line."""
    count = 0
    for line in lines:
        if line.strip():
            count += 1
            yield ("\t" if line.startswith("    ") else "") + repaired(_even(line))
        else:
            if count > 1:
                yield ""
            count = 0


def books(lines: Iterable[str]) -> Iterator[str]:
    """Hard-wrapped paragraphs between empty lines; two empty lines behind one of more than one line remain one."""
    paragraph: list[str] = []
    length = empty = 0
    for line in map(_even, lines):
        if line:
            paragraph.append(line)
            continue
        if paragraph:
            yield repaired(" ".join(paragraph))
            length, empty, paragraph = len(paragraph), 0, []
        empty += 1
        if empty == 2 and length > 1:
            yield ""
    if paragraph:
        yield repaired(" ".join(paragraph))


def subtitles(lines: Iterable[str]) -> Iterator[str]:
    """Subtitles of films."""
    clean = (repaired(_without_dash(line)) for line in map(_even, lines))
    return _unrepeated(_quoted(line) if _is_uttered(line) else line for line in _single_empty(clean))


def subtitles_of_lectures(lines: Iterable[str]) -> Iterator[str]:
    """Subtitles that were parsed from web pages."""
    return subtitles(
        line
        for line in map(_resolved, lines)
        if line is not None and "->" not in line and not (line.endswith(":") and not re.search(r"[^\W\d_]", line))
    )


def telephone(lines: Iterable[str]) -> Iterator[str]:
    """Utterances on the telephone; of later years with the caller before each."""
    clean = (repaired(_without_dash(line)) for line in _without(_CALLER, lines))
    return _unrepeated(map(_quoted, clean))


def simple_articles(lines: Iterable[str]) -> Iterator[str]:
    """Articles with an empty line behind each, without those that only say where a place is."""

    def kept() -> Iterator[str]:
        behind_stub = False
        for line in map(_even, lines):
            text = repaired(html.unescape(html.unescape(_REFERENCE.sub("", line))))
            is_stub = len(text) < _STUB_LENGTH and any(phrase in text for phrase in _STUB)
            if not is_stub and (text or not behind_stub):
                heading = _HEADING.match(text)
                yield from (text,) if heading is None else ("", heading["title"])
            behind_stub = is_stub

    return _single_empty(kept())


def articles(lines: Iterable[str]) -> Iterator[str]:
    """Articles under headings, with an empty line before each."""
    for line in map(_even, lines):
        if not line or line.startswith(_NO_ARTICLE):
            continue
        heading = _HEADING.match(line)
        if heading is not None:
            yield ""
        yield repaired(_LINK.sub(r"\1", _REFERENCE.sub("", line if heading is None else heading["title"])))


def _even(line: str) -> str:
    return " ".join(line.split())


def _quoted(line: str) -> str:
    return f'"{line}"' if line else line


def _without_dash(line: str) -> str:
    return line.removeprefix("-").lstrip()


def _without(notation: re.Pattern[str], lines: Iterable[str]) -> Iterator[str]:
    """The lines without a notation that is no words; those that were only that are dropped, and empty ones stay."""
    for line in map(_even, lines):
        words = _even(notation.sub(" ", line))
        if not line or any(character.isalnum() for character in words):
            yield words


def _unrepeated(lines: Iterable[str]) -> Iterator[str]:
    """The lines without those that are like the one before them; empty ones stay."""
    before = None
    for line in lines:
        if not line or line != before:
            yield line
        before = line


def _single_empty(lines: Iterable[str]) -> Iterator[str]:
    """The lines with one empty line where there are several."""
    before = None
    for line in lines:
        if line or before != "":
            yield line
        before = line


def _is_uttered(line: str) -> bool:
    """Whether a subtitle is to stand between double quotes."""
    marked = line.endswith((":", '"')) or line.startswith('"')
    return line != "" and not marked and not _is_bracketed(line)


def _is_bracketed(line: str) -> bool:
    """Whether the whole line stands in one pair of brackets.

    >>> _is_bracketed("(a (b) c)"), _is_bracketed("(a) b (c)")
    (True, False)
    """
    opening, closing = line[0], _BRACKETS.get(line[0])
    depth = 0
    for at, sign in enumerate(line):
        depth += (sign == opening) - (sign == closing)
        if depth == 0:
            return closing is not None and at == len(line) - 1
    return False


def _resolved(line: str) -> str | None:
    """A line without entities, which may have been escaped several times; `None` where it holds escaped HTML."""
    text = _even(line)
    for _ in range(_STAGES):
        if "&lt" in text and "&gt" in text:
            return None
        for entity, sign in _ENTITIES.items():
            text = text.replace(entity, sign)
    return text


CLEANERS: Mapping[str, Cleaner] = MappingProxyType(
    {
        "aochildes": speech,
        "bnc_spoken": conversations,
        "cbt": treebank,
        "childes": childes,
        "children_stories": stories,
        "gutenberg": books,
        "open_subtitles": subtitles,
        "qed": subtitles_of_lectures,
        **dict.fromkeys(("simple_wiki", "simple_wikipedia"), simple_articles),
        "switchboard": telephone,
        "wikipedia": articles,
    }
)
"""The corpora of BabyLM by the names of their files, and how each is cleaned."""
