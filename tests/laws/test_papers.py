"""The pages of the founding papers list every item of the documents once."""

import re
from pathlib import Path

import pytest

PAPERS = Path(__file__).parents[2] / "docs" / "papers"
ITEMS = {"painters": ("P", 37), "heterogeneity": ("H", 28), "elc_bert": ("E", 37), "layershuffle": ("L", 45)}
"""The letter of each page's items, and their number in the document and its paper."""


@pytest.mark.parametrize("page", ITEMS)
def test_every_item_of_a_paper_has_one_row(page: str) -> None:
    """A row begins with its item numbers and has two texts: the document's and ours."""
    letter, count = ITEMS[page]
    rows = re.findall(r"^\| ([A-Z]\d[^|]*) \|([^\n]*)\|$", (PAPERS / f"{page}.md").read_text("utf-8"), re.MULTILINE)
    numbers = [name.strip() for names, _ in rows for name in names.split(",")]
    assert sorted(numbers, key=lambda name: int(name[1:])) == [f"{letter}{number}" for number in range(1, count + 1)]
    for names, rest in rows:
        assert all(cell.strip() for cell in rest.split(" | ")), names


@pytest.mark.parametrize("page", ITEMS)
def test_every_item_that_is_built_has_a_command_that_was_run(page: str) -> None:
    letter, _ = ITEMS[page]
    described, *closing = re.split(r"^## (?:What is not here|What has its own issue)$", _text(page), flags=re.MULTILINE)
    described, table = described.split("\n## Run here\n")
    rows = re.findall(r"^\| `layerwise [^|]*` \| ([^|]*) \| ([^|]*) \|$", table, re.MULTILINE)
    ran = {number for items, _ in rows for number in _numbers(items, letter)}
    built = {
        number
        for names in re.findall(r"^\| ([A-Z]\d[^|]*) \|", described, re.MULTILINE)
        for number in _numbers(names, letter)
    }
    assert built <= ran
    assert len(rows) == table.count("\n| `"), "a row has three cells"
    assert all(printed.strip() for _, printed in rows)
    assert closing or built


def _numbers(items: str, letter: str) -> set[int]:
    found = set()
    for first, last in re.findall(rf"{letter}(\d+)(?: to {letter}(\d+))?", items):
        found.update(range(int(first), int(last or first) + 1))
    return found


def _text(page: str) -> str:
    return (PAPERS / f"{page}.md").read_text("utf-8")
