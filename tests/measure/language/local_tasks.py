"""Five small benchmarks in local files, one for each lm-eval request type."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from string import Template

from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.benchmark_requests import RequestLikelihoods, build_requests, judge_plan
from layerwise.measure.language.benchmarks import Benchmarks, find_benchmarks
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.stack import Stack

SOURCES = Path(__file__).with_name("tasks")
TASKS = ("arc_tiny", "hellaswag_tiny", "winogrande_tiny", "lambada_tiny", "gsm8k_tiny")


def write_tasks(folder: Path, documents: int = 10, seed: int = 0) -> tuple[str, ...]:
    draw = random.Random(seed)

    def word(most: int) -> str:
        return "".join(draw.choices("abcdefgh", k=draw.randint(1, most)))

    rows = []
    for number in range(documents):
        half = number % 2
        rows.append(
            {
                "question": f"{number}+1=",
                "choices": [word(4) for _ in range(3)],
                "letters": [*"abcd"],
                "gold": number % 3,
                "half": half,
                "contexts": [f"{word(6)} and {word(6)}", f"{word(6)} or {word(3)}"],
                "ending": f"{word(6)} {word(4)}",
                "passage": " ".join(word(7) for _ in range(4 + 8 * (number % 3))),
                "answer": word(1),
            }
        )
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for name in (*TASKS, "texts_tiny"):
        write_task(folder, name)
    return TASKS


def write_task(folder: Path, source: str, questions: Path | None = None, name: str = "") -> Path:
    written = folder / f"{name or source}.yaml"
    text = Template((SOURCES / f"{source}.yaml").read_text())
    known = {"name": written.stem, "questions": questions or folder / "questions.jsonl", "cache": folder / "cache"}
    written.write_text(text.substitute(known))
    return written


def asked(
    stack: Stack,
    plans: Sequence[Plan],
    names: Sequence[str] | Benchmarks,
    *,
    limit: int | None = None,
    folder: Path | None = None,
    seed: int = 0,
) -> list[Score]:
    loaded = names if isinstance(names, Benchmarks) else find_benchmarks(names, folder, seed=seed)
    requests = build_requests(stack, loaded, batch_tokens=512, limit=limit, seed=seed)
    rows = [] if requests.likelihoods is None else sweep(stack, plans, requests.likelihoods)
    answers = RequestLikelihoods.from_losses(rows, plans, requests.likelihoods)
    return [score for plan in plans for score in judge_plan(stack, plan, requests, answers).scores]
