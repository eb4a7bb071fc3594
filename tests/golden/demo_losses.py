"""The losses of the shipped demo model that `test_demo_losses.py` compares with, and the command that makes them.

    PYTHONPATH=tests python -m golden.demo_losses

Generated questions only: the standard library's text differs between versions of Python, the questions do not.
"""

import json
from pathlib import Path

from layerwise.data.demo import skills
from layerwise.data.text.corpus import Corpus
from layerwise.data.text.documents import Document
from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.evaluation_data import tokenize
from layerwise.plan import Plan
from layerwise.stack import load

GOLDEN = Path(__file__).with_suffix(".json")
PLANS = (
    "0-11",
    "0-4 6-11",
    "0-4 6 5 7-11",
    "0-3 7-4 8-11",
    "0-3 (4|5|6|7) 8-11",
    "0-3 (4|5|6|7)*3 8-11",
    "0-5 [4 5]*2 6-11",
)


def losses() -> dict[str, dict[str, float]]:
    documents = [
        Document(f"{task}/{number}", example.text, task, len(example.prompt))
        for task in skills.TASKS
        for number, example in enumerate(skills.draw_examples(task, "heldout", 16))
    ]
    stack = load("demo", device="cpu")
    rows = sweep(stack, map(Plan.parse, PLANS), tokenize(stack, Corpus("golden", tuple(documents))))
    found: dict[str, dict[str, float]] = {plan: dict.fromkeys(skills.TASKS, 0.0) for plan in PLANS}
    for row in rows:
        found[row.plan][row.task] += row.nll
    return found


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(losses(), indent=2) + "\n")
