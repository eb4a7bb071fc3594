"""Punctuation of a line: each rule by lines that it changes and lines that it leaves."""

from __future__ import annotations

import sys

import pytest
import sacremoses  # noqa: F401  # half a second, which no test should wait for

from layerwise.data.text.punctuation import (
    _moses,
    joined_contractions,
    normalised,
    repaired,
    spaced_quotes,
    spaced_signs,
)
from layerwise.errors import DataError


@pytest.mark.parametrize(
    ("line", "even"),
    [
        ("Yes.No", "Yes. No"),
        ("Yes.(No)", "Yes. (No)"),
        ("e.g.this v1.2", "e.g.this v1.2"),
        ("who?me!you…she’he", "who? me! you… she’ he"),
        ("who?[me]", "who? [me]"),
        ("well...yes", "well... yes"),
        ("well . . . yes", "well... yes"),
        ("one,two 1,000", "one, two 1,000"),
        ("a;b (a)b [a]b {a}b 5%b", "a; b (a) b [a] b {a} b 5% b"),
        ("he said:go at 12:30 or 12:noon", "he said: go at 12:30 or 12: noon"),
        ("( a ) [ b ] { c }", "(a) [b] {c}"),
        ("so , it ; is : it ? is ! it … is ’ it .", "so, it; is: it? is! it… is’ it."),
        ("$ 5 £ 6 € 7 8 %", "$5 £6 €7 8%"),
        ("$ five and a %", "$ five and a %"),
    ],
)
def test_white_space_around_signs(line: str, even: str) -> None:
    assert spaced_signs(line) == even


@pytest.mark.parametrize(
    ("line", "even"),
    [
        ("do n't go", "don't go"),
        ("DO N'T GO, IT 'S", "DON'T GO, IT 'S"),
        ("we 'll, you 're. they 've I 'm he 's she 'd ", "we'll, you're. they've I'm he's she'd "),
        ("I do n't", "I do n't"),  # nothing follows
        ("is n't? 't was 'd've", "is n't? 't was 'd've"),
    ],
)
def test_contractions_that_a_space_a_comma_or_a_full_stop_follows(line: str, even: str) -> None:
    assert joined_contractions(line) == even


@pytest.mark.parametrize(
    ("line", "even"),
    [
        ('" yes " he said', '"yes" he said'),
        ('he said"yes"and left', 'he said "yes" and left'),
        ('one " two', 'one " two'),
        ('the "" and "b"c', 'the "" and "b"c'),
        ('"a" "b"c', '"a" "b"c'),
        ('a"b" c "d" e', 'a "b" c "d" e'),  # one of four
        ('a" b "c" d "e', 'a" b "c" d "e'),  # all four: it is not known which of them open
        ('a" b "c', 'a "b" c'),  # two are never too many
    ],
)
def test_double_quotes(line: str, even: str) -> None:
    assert spaced_quotes(line) == even


def test_typographic_signs_and_encodings() -> None:
    assert normalised("He said `so` —it is… „late“") == 'He said `so` - it is... "late"'
    assert normalised('" Go " , he said') == '"Go" , he said'
    assert repaired("  it\u00e2\u20ac\u2122s \ufb01ne &amp; “so” — yes") == 'it\'s fine & "so" — yes'


def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    _moses.cache_clear()
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "sacremoses", None)
        with pytest.raises(DataError, match=r'--clean needs sacremoses.* pip install "layerwise\[babylm\]"'):
            normalised("words")
    assert normalised("words ") == "words"
