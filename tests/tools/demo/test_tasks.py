"""The benchmark tasks that ship are those that the script makes, and every question has one right answer."""

import json
from pathlib import Path

from tools.demo.tasks import write_tasks

SHIPPED = Path(__file__).parents[3] / "docs" / "results" / "demo_tasks"


def test_the_script_makes_the_files_that_ship(tmp_path: Path) -> None:
    write_tasks(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in SHIPPED.iterdir()}
    for name, text in made.items():
        for row in map(json.loads, text.splitlines() if name.endswith(".jsonl") else ()):
            assert len(set(row.get("choices", ()))) == len(row.get("choices", ()))
