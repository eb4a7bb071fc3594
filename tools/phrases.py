"""List phrases that the style of this project avoids: `python tools/phrases.py [PATH...]`.

Of Python files, docstrings, comments and strings are searched, but not column names. Markdown, text and templates are
searched entirely. A hit is not always an error.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

PHRASES = {
    "is not a": r"(?<!there )\b(?:is|are|was|were) no\b(?! (?:longer|more|better|worse|larger|smaller|less|one)\b)",
    "compared with": r"\bbesides?\b",
    "is in": r"\bst(?:ands?|ood)\b(?!-| ?alone| for)|\blies? (?:in|behind|beyond)\b",
    "again": r"\banew\b|\b(?:takes?|took|taken) up again\b",
    "other than": r"\botherwise than\b|\bof another kind\b",
    "users": r"\bwho(?:ever|soever)\b|\bnobody\b|\beverybody\b",
    "continue": r"\b(?:go|goes|going|gone|went) on\b",
    "its": r"\bof (?:its|their) own\b",
    "nats/token": r"\b(?:nats?|bits) (?:a|per) token\b",
    "original model": r"\buntouched\b|\bas trained\b|\bwhole models?\b",
    "inconclusive": r"\bunresolved\b|\bnot resolvable\b",
    "skipped, omitted": r"\bleft out\b|\bleav(?:e|es|ing) (?:it |them )?out\b(?! of)",
    "costly": r"\bdear(?:er|est)?\b|\bwhat (?:it|they|that) takes?\b",
    "randomly initialized model": r"\btwins?\b",
    "importance": r"\b(?:is|are) worth\b|\bworth of\b",
    "variant, condition": r"\barms?\b",
    "call, segment, boundary": r"\b(?:hops?|legs?|seams?)\b",
    "held-out text": r"\bchose nothing\b|\bfresh text\b",
    "available": r"\b(?:can|to) be had\b|\bcome what may\b|\blets? (?:it |them )?go of\b",
    "American spelling": r"\b\w*(?:quantis|normalis|behaviour|colour|initialis|optimis|serialis|recognis|organis)\w*\b",
}
_PATTERNS = {better: re.compile(pattern, re.IGNORECASE) for better, pattern in PHRASES.items()}
_OPENING = re.compile(r"(?:What|Whether|How|Which|Why|Where|Who|When)\b")
_NAME = re.compile(r"[\"'][\w.:-]+[\"']")
_SUFFIXES = (".py", ".md", ".txt", ".jinja", ".html")


def find_in_text(text: str, first: int = 1) -> Iterator[tuple[int, str, str]]:
    """Yield the line number, a better word and the line of every hit; lines count from `first`."""
    for number, line in enumerate(text.splitlines(), first):
        yield from ((number, better, line.strip()) for better, pattern in _PATTERNS.items() if pattern.search(line))


def find_in_python(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield the hits in docstrings, comments and strings, and docstrings that begin with a noun clause."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            text = node.value.value.strip()
            if _OPENING.match(text):
                yield node.lineno, "a verb", text.splitlines()[0]
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.STRING, tokenize.COMMENT) and not _NAME.fullmatch(token.string):
            yield from find_in_text(token.string, token.start[0])


def main(paths: list[str]) -> None:
    count = 0
    for path in map(Path, paths or ["src", "docs", "README.md"]):
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.suffix not in _SUFFIXES or "build" in file.parts:
                continue
            text = file.read_text(encoding="utf-8")
            for number, better, line in find_in_python(text) if file.suffix == ".py" else find_in_text(text):
                count += 1
                print(f"{file}:{number}: [{better}] {line[:120]}")
    print(f"{count} places")


if __name__ == "__main__":
    main(sys.argv[1:])
