"""Write lm-eval tasks for the skills of the demo model: `python -m tools.demo.tasks FOLDER`.

Each of the five tasks has 60 held-out questions in the format of a public benchmark: `arc_demo` (arithmetic with four
choices), `gsm8k_demo` (generated arithmetic), `hellaswag_demo` (which of four endings closes all brackets),
`winogrande_demo` (which of two orders of letters is sorted) and `lambada_demo` (the last letter of a copied word).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import yaml

from layerwise.data.demo.skills import Example, draw_examples

QUESTIONS = 60

Question = dict[str, Any]


def _choose(random: Random, right: str, wrong: list[str], **question: str) -> Question:
    choices = [right, *wrong]
    random.shuffle(choices)
    return {**question, "choices": choices, "answer": choices.index(right)}


def _change_digit(answer: str, random: Random) -> str:
    at = random.choice([at for at, character in enumerate(answer) if character.isdigit()])
    return answer[:at] + random.choice([digit for digit in "123456789" if digit != answer[at]]) + answer[at + 1 :]


def make_arc(random: Random) -> list[Question]:
    """Ask for the running results of a sum. Three of the four choices have a wrong digit."""

    def ask(example: Example) -> Question:
        right, wrong = example.answer.strip(), list[str]()
        while len(wrong) < 3:
            changed = _change_digit(right, random)
            if changed not in wrong:
                wrong.append(changed)
        return _choose(random, right, wrong, question=example.prompt)

    return [ask(example) for example in draw_examples("arithmetic", "heldout", QUESTIONS, seed=1)]


def make_gsm8k(random: Random) -> list[Question]:
    """Ask for the running results of a sum."""
    chosen = draw_examples("arithmetic", "heldout", 2 * QUESTIONS, seed=2)
    random.shuffle(chosen)
    return [{"question": each.prompt, "answer": each.answer.strip()} for each in chosen[:QUESTIONS]]


def make_hellaswag(random: Random) -> list[Question]:
    """Ask for the ending that closes all brackets. Three of the four choices have one wrong bracket."""

    def ask(example: Example) -> Question:
        marks, wrong = example.answer.split(), list[str]()
        while len(wrong) < 3:
            changed = list(marks)
            changed[random.randrange(len(marks))] = random.choice(")]}")
            changed += [random.choice(")]}")] * (len(marks) == 1)
            if changed != marks and " ".join(changed) not in wrong:
                wrong.append(" ".join(changed))
        return _choose(random, " ".join(marks), wrong, question=example.prompt)

    return [ask(example) for example in draw_examples("brackets", "heldout", QUESTIONS, seed=5)]


def make_winogrande(random: Random) -> list[Question]:
    """Ask for the sorted letters of a word. In the other choice, two neighbors are exchanged."""
    questions: list[Question] = []
    for example in draw_examples("sort", "heldout", 2 * QUESTIONS, seed=3):
        letters = example.answer.split()
        pairs = [at for at in range(len(letters) - 1) if letters[at] != letters[at + 1]]
        if pairs and len(questions) < QUESTIONS:
            at = random.choice(pairs)
            wrong = [*letters[:at], letters[at + 1], letters[at], *letters[at + 2 :]]
            questions.append(_choose(random, " ".join(letters), [" ".join(wrong)], question=example.prompt))
    return questions


def make_lambada(random: Random) -> list[Question]:
    """Ask for the last letter of a copied or reversed word."""
    chosen = draw_examples("copy", "heldout", 2 * QUESTIONS, seed=4)
    random.shuffle(chosen)
    words = [example.text.rstrip("\n").rpartition(" ") for example in chosen[:QUESTIONS]]
    return [{"question": before, "answer": last} for before, _, last in words]


def _metric(name: str) -> dict[str, Any]:
    return {"metric": name, "aggregation": "mean", "higher_is_better": True}


CHOICES = {
    "output_type": "multiple_choice",
    "doc_to_target": "{{answer}}",
    "doc_to_choice": "{{choices}}",
    "metric_list": [_metric("acc"), _metric("acc_norm")],
}
TASKS: Mapping[str, tuple[Callable[[Random], list[Question]], Mapping[str, Any]]] = {
    "arc_demo": (make_arc, CHOICES),
    "gsm8k_demo": (
        make_gsm8k,
        {
            "output_type": "generate_until",
            "doc_to_target": "{{answer}}",
            "generation_kwargs": {"until": ["\n"], "max_gen_toks": 12, "do_sample": False},
            "metric_list": [_metric("exact_match")],
            "filter_list": [
                {
                    "name": "numbers",
                    "filter": [
                        {"function": "regex", "regex_pattern": "([0-9][0-9 ]*[0-9])"},
                        {"function": "take_first"},
                    ],
                }
            ],
        },
    ),
    "hellaswag_demo": (make_hellaswag, CHOICES),
    "lambada_demo": (
        make_lambada,
        {"output_type": "loglikelihood", "doc_to_target": " {{answer}}", "metric_list": [_metric("acc")]},
    ),
    "winogrande_demo": (make_winogrande, {**CHOICES, "metric_list": [_metric("acc")]}),
}


def write_tasks(folder: Path) -> None:
    """Write `TASK.yaml` and `TASK.jsonl` of every task into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (make, settings) in TASKS.items():
        rows = make(Random(name))
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        task = {
            "task": name,
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": f"{name}.jsonl"}},
            "test_split": "test",
            "doc_to_text": "{{question}}",
            **settings,
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(task, sort_keys=False))


if __name__ == "__main__":
    write_tasks(Path(sys.argv[1]))
