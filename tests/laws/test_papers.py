"""The pages of the founding papers name everything that the documents describe, each thing once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAPERS = Path(__file__).parents[2] / "docs" / "papers"
ITEMS = {"painters": ("P", 37), "heterogeneity": ("H", 28), "elc_bert": ("E", 37), "layershuffle": ("L", 45)}
"""The letter of each page's items, and how many the document and the paper behind it describe."""


@pytest.mark.parametrize("page", ITEMS)
def test_every_item_of_a_paper_has_one_row(page: str) -> None:
    """A row begins with the numbers of its items, and has a text for the document and one for what is here."""
    letter, count = ITEMS[page]
    rows = re.findall(r"^\| ([A-Z]\d[^|]*) \|([^\n]*)\|$", (PAPERS / f"{page}.md").read_text("utf-8"), re.MULTILINE)
    numbers = [name.strip() for names, _ in rows for name in names.split(",")]
    assert sorted(numbers, key=lambda name: int(name[1:])) == [f"{letter}{number}" for number in range(1, count + 1)]
    for names, rest in rows:
        assert all(cell.strip() for cell in rest.split(" | ")), names
