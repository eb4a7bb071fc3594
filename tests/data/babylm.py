"""Text in BabyLM's layouts, one file per corpus, without repeated sentences."""

import textwrap
from collections.abc import Callable
from pathlib import Path
from random import Random

NOUNS = ("cat", "dog", "house", "tree", "river", "mother", "teacher", "letter", "window", "garden")
VERBS = ("saw", "took", "liked", "found", "heard", "wanted", "painted", "forgot")

Writer = Callable[[Random, str, int], str]


def sentence(random: Random, origin: str, number: int) -> str:
    long = f" and then {random.choice(VERBS)} the {random.choice(NOUNS)} again" * (number % 2)
    return f"The {random.choice(NOUNS)} {random.choice(VERBS)} a {random.choice(NOUNS)} of {origin}{number}{long}."


def _utterances(speakers: tuple[str, ...], empty: int = 0) -> Writer:
    def written(random: Random, origin: str, count: int) -> str:
        lines = []
        for number in range(count):
            lines.append(speakers[number % len(speakers)] + sentence(random, origin, number))
            lines += [""] if empty and number % empty == empty - 1 else []
        return "\n".join(lines) + "\n"

    return written


def _articles(random: Random, origin: str, count: int) -> str:
    articles, number = [], 0
    while number < count:
        size = min(count - number, random.randint(2, 6))
        first, *rest = (sentence(random, origin, number + more) for more in range(size))
        articles.append(f"= = = Article {number} of {origin} = = =\n{first}\n\n{' '.join(rest)}\n\n")
        number += size
    return "".join(articles)


def _books(random: Random, origin: str, count: int) -> str:
    found = [sentence(random, origin, number) for number in range(count)]
    paragraphs = [textwrap.fill(" ".join(found[start : start + 5]), 72) for start in range(0, count, 5)]
    half = len(paragraphs) // 2
    return "".join(
        f"*** Book {number} ***\n\n" + "\n\n".join(part) + "\n\n"
        for number, part in enumerate((paragraphs[:half], paragraphs[half:]))
    )


LAYOUTS: dict[str, Writer] = {
    "bnc_spoken": _utterances(("",)),
    "childes": _utterances(("*MOT: ", "*CHI: "), empty=12),
    "gutenberg": _books,
    "open_subtitles": _utterances(("", "- "), empty=3),
    "simple_wiki": _articles,
    "switchboard": _utterances(("A: ", "B: ")),
}
"""The corpora of 2024 and 2025."""

FOLDERS = {
    "2023": {"train": "babylm_10M", "dev": "babylm_dev", "test": "babylm_test"},
    "2024": {"train": "train_10M", "dev": "dev", "test": "test"},
}


def write(folder: Path, year: str = "2024", *, train: int = 240, held_out: int = 60) -> dict[str, Path]:
    found = {}
    for split, name in FOLDERS[year].items():
        found[split] = folder / name
        found[split].mkdir(parents=True)
        for corpus, layout in LAYOUTS.items():
            text = layout(Random(f"{split}/{corpus}"), f"{corpus}-{split}-", train if split == "train" else held_out)
            (found[split] / f"{corpus}.{split}").write_text(text)
    return found
