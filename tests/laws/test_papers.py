"""Pages of papers list each item once, with a command that was run; pages of results count their verdicts."""

import re
from pathlib import Path

import pytest

PAPERS = Path(__file__).parents[2] / "docs" / "papers"
RESULTS = PAPERS.parent / "results"
STATED = re.compile(
    r"Of (\d+) verdicts(?: at 95 %|, corrected in (\d+) famil(?:y|ies)), ([\d.]+) are expected to be wrong by chance"
)
VERDICT = re.compile(r"\b(supported|contradicted|no better than the null|inconclusive|better|worse|resolved)\b")
COUNTED = (
    "claims.md",
    "smollm2.md",
    "repeated_claims.md",
    "growth.md",
    "growth-gutenberg/README.md",
    "layer_weights.md",
)
"""Pages with all verdicts in tables, under the heading "Verdicts" if there is one."""
ITEMS = {"painters": ("P", 37), "heterogeneity": ("H", 28), "elc_bert": ("E", 37), "layershuffle": ("L", 45)}
"""Letter and number of the items of each page."""


@pytest.mark.parametrize("page", ITEMS)
def test_every_item_of_a_paper_has_one_row(page: str) -> None:
    letter, count = ITEMS[page]
    rows = re.findall(r"^\| ([A-Z]\d[^|]*) \|([^\n]*)\|$", (PAPERS / f"{page}.md").read_text("utf-8"), re.MULTILINE)
    numbers = [name.strip() for names, _ in rows for name in names.split(",")]
    assert sorted(numbers, key=lambda name: int(name[1:])) == [f"{letter}{number}" for number in range(1, count + 1)]
    for names, rest in rows:
        assert all(cell.strip() for cell in rest.split(" | ")), names


@pytest.mark.parametrize("page", ITEMS)
def test_every_implemented_item_has_a_command_that_was_run(page: str) -> None:
    letter, _ = ITEMS[page]
    described, *closing = re.split(r"^## (?:What is not here|Covered elsewhere)$", _text(page), flags=re.MULTILINE)
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


@pytest.mark.parametrize("path", sorted(RESULTS.rglob("*.md")), ids=lambda path: str(path.relative_to(RESULTS)))
def test_a_page_of_results_states_the_expected_number_of_wrong_verdicts(path: Path) -> None:
    text = path.read_text("utf-8")
    stated = STATED.search(" ".join(text.split()))
    if stated is None:
        assert "no verdict" in text.lower()
        return
    count, families, wrong = stated.groups()
    assert float(wrong) == pytest.approx(0.05 * int(families or count))
    if str(path.relative_to(RESULTS)) in COUNTED:
        verdicts = [found[-1] for row in _verdict_rows(text) for found in row]
        assert int(count) == len(verdicts)


def test_the_counts_of_the_claims_page_match_the_table_of_smollm2() -> None:
    """The last run of a claim decides."""
    decided = [row[-1][-1] for row in _verdict_rows((RESULTS / "smollm2.md").read_text("utf-8")) if row]
    counts = [
        decided.count(verdict) for verdict in ("supported", "contradicted", "no better than the null", "inconclusive")
    ]
    claims = " ".join((RESULTS / "claims.md").read_text("utf-8").split())
    stated = re.search(
        r"of (\d+) claims (\d+) are supported, (\d+) contradicted, (\d+) no better than the null and (\d+)", claims
    )
    assert stated is not None
    assert [int(number) for number in stated.groups()] == [len(decided), *counts]


def _verdict_rows(text: str) -> list[list[list[str]]]:
    """Return the verdicts in every cell of every row of the tables under "Verdicts", or of all tables of a page."""
    section = re.split(
        r"^## ", text.partition("\n## Verdicts\n")[2] or text.replace("\n## ", "\n### "), flags=re.MULTILINE
    )[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("|")]
    return [[found for cell in cells if (found := VERDICT.findall(cell))] for cells in rows]


def _numbers(items: str, letter: str) -> set[int]:
    found = set()
    for first, last in re.findall(rf"{letter}(\d+)(?: to {letter}(\d+))?", items):
        found.update(range(int(first), int(last or first) + 1))
    return found


def _text(page: str) -> str:
    return (PAPERS / f"{page}.md").read_text("utf-8")
