"""Cleaning of BabyLM's corpora, each as it needs: what ELC-BERT's authors did to them before training.

BabyLM's files come from ten sources, each with remnants of its own. Per corpus (Charpentier and Samuel 2023, appendix
on pre-processing):

    childes, aochildes    utterances capitalised, tokens detached by white space joined again, between double quotes
    bnc_spoken, qed,      the same; of `qed` badly parsed HTML is repaired, of subtitles and `switchboard` a dash that
    open_subtitles,       begins a line is taken off
    switchboard
    cbt                   remnants of the Penn Treebank (`-LRB-`, ``) written as the signs that they stand for
    children_stories      indentation kept as a tab, which the tokenizer has a token for
    gutenberg             lines that were wrapped joined to the paragraphs that they were
    simple_wiki,          headings and empty brackets taken off, broken lines joined
    wikipedia

White space is made even in all. Speakers (`*MOT:`, `A:`), which later years of BabyLM have, and what is described in
brackets beside speech are taken off with the rest of the notation, since they are no words. Documents are cleaned one
by one, so the same text is held out of a training with cleaning as without.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from layerwise.data.text.corpus import Corpus
from layerwise.errors import DataError

Cleaner = Callable[[str], str]

_SPACES = re.compile(r"[^\S\n]+")
_DETACHED = re.compile(r" +([.,!?;:%)\]}]|n't\b|'(?:s|re|ve|ll|d|m)\b)")
_OPENING = re.compile(r"([(\[{]) +")
_SPEAKER = re.compile(r"^(?:\*[A-Z0-9]{2,4}:|[A-Z]{1,2}:)\s*")
_DESCRIBED = re.compile(r"\[[^\]\n]*\]|&=\S+")
_DASH = re.compile(r"^[-\u2013\u2014]+\s*")
_TAGS = re.compile(r"</?[a-zA-Z][^>\n]*>")
_WIKI_HEADING = re.compile(r"^(?:= ?)+[^=\n]*(?:= ?)+$")
_EMPTY_BRACKETS = re.compile(r"\(\s*[,;]?\s*\)|\[\s*\]")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n\s*")
_TREEBANK = {
    "-LRB-": "(", "-RRB-": ")", "-LCB-": "{", "-RCB-": "}", "-LSB-": "[", "-RSB-": "]", "``": '"', "''": '"',
    "`": "'",
}  # fmt: skip


def cleaned(corpus: Corpus) -> Corpus:
    """The corpus with every document of one of BabyLM's corpora cleaned; those of which nothing is left are left out.

    The corpus of a document is its task, as files of BabyLM are read. Raises `DataError` for a text without any.
    """
    known = {each.task for each in corpus.documents} & set(CLEANERS)
    if not known:
        raise DataError(
            f"{corpus.name} holds no file of BabyLM to clean: files are known by their names, such as childes.train "
            f"({', '.join(CLEANERS)}); leave --clean out, or give BabyLM's files"
        )
    documents = []
    for each in corpus.documents:
        text = CLEANERS[each.task](each.text) if each.task in CLEANERS else each.text
        if text.strip():
            documents.append(replace(each, text=text))
    return Corpus(corpus.name, tuple(documents))


def even(text: str) -> str:
    """The text with single spaces, none at the ends of lines.

    >>> even("  a   b \\n c")
    'a b\\nc'
    """
    return "\n".join(_SPACES.sub(" ", line).strip() for line in text.split("\n"))


def joined_tokens(line: str) -> str:
    """A line whose punctuation stands by itself, as it is usually written.

    >>> joined_tokens("do n't you know , it 's ( here ) ?")
    "don't you know, it's (here)?"
    """
    return _OPENING.sub(r"\1", _DETACHED.sub(r"\1", line))


def speech(text: str) -> str:
    """Utterances, one a line: capitalised, between double quotes, without notation.

    >>> speech("*MOT:\\tlook at the dog . [points]\\n- yes .")
    '"Look at the dog."\\n"Yes."'
    """
    lines = []
    for line in text.split("\n"):
        words = _DASH.sub("", _SPEAKER.sub("", line.strip()))
        words = joined_tokens(even(_DESCRIBED.sub(" ", words)))
        if any(character.isalnum() for character in words):
            quoted = words.replace('"', "'")
            lines.append(f'"{quoted[0].upper()}{quoted[1:]}"')
        elif not line.strip():
            lines.append("")
    return "\n".join(lines)


def subtitles_of_lectures(text: str) -> str:
    """Speech with badly parsed HTML.

    >>> subtitles_of_lectures("<i>it &amp;#39;s here</i>")
    '"It\\'s here"'
    """
    return speech(_TAGS.sub(" ", html.unescape(html.unescape(text))))


def treebank(text: str) -> str:
    """Text with the brackets and quotes of the Penn Treebank.

    >>> treebank("`` Come -LRB- he said -RRB- . ''")
    '" Come (he said). "'
    """
    for remnant, sign in _TREEBANK.items():
        text = text.replace(remnant, sign)
    return "\n".join(joined_tokens(line) for line in even(text).split("\n"))


def stories(text: str) -> str:
    """Text whose indented lines begin with a tab.

    >>> stories("    Once  upon\\na time")
    '\\tOnce upon\\na time'
    """
    lines = []
    for line in text.split("\n"):
        indented = line.startswith(("  ", "\t")) and bool(line.strip())
        lines.append(("\t" if indented else "") + even(line))
    return "\n".join(lines)


def unwrapped(text: str) -> str:
    """Paragraphs between empty lines, each on one line.

    >>> unwrapped("It was\\nlate.\\n\\nHe ran.")
    'It was late.\\n\\nHe ran.'
    """
    return "\n\n".join(even(block.replace("\n", " ")) for block in _BLANK_LINE.split(text) if block.strip())


def articles(text: str) -> str:
    """Articles of an encyclopedia without their headings; a line that begins in lower case goes on with the last one.

    >>> articles("= = = Cat = = =\\nA cat ( ) is\\nan animal.")
    'A cat is an animal.'
    """
    lines: list[str] = []
    for line in even(text).split("\n"):
        if _WIKI_HEADING.match(line):
            lines.append("")
            continue
        kept = even(_EMPTY_BRACKETS.sub(" ", line))
        if kept and kept[0].islower() and lines and lines[-1]:
            lines[-1] = f"{lines[-1]} {kept}"
        else:
            lines.append(kept)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")


CLEANERS: Mapping[str, Cleaner] = MappingProxyType(
    {
        **dict.fromkeys(("aochildes", "childes", "bnc_spoken", "open_subtitles", "switchboard"), speech),
        "qed": subtitles_of_lectures,
        "cbt": treebank,
        "children_stories": stories,
        "gutenberg": unwrapped,
        **dict.fromkeys(("simple_wiki", "wikipedia"), articles),
    }
)
"""The corpora of BabyLM by the names of their files, and how each is cleaned."""
