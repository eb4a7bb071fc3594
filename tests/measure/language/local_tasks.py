"""Five small benchmarks in local files, one for each lm-eval request type."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from layerwise.measure.interventions.sweep import sweep
from layerwise.measure.language.benchmark_requests import RequestLikelihoods, build_requests, judge_plan
from layerwise.measure.language.benchmarks import Benchmarks, find_benchmarks
from layerwise.plan import Plan
from layerwise.results.rows import Score
from layerwise.stack import Stack

HEAD = """
task: {name}
dataset_path: json
dataset_kwargs:
  data_files: {{test: {questions}}}
  cache_dir: {cache}
test_split: test
fewshot_split: test
output_type: {kind}
"""
ACCURACY = "  - {metric: acc, aggregation: mean, higher_is_better: true}\n"
TASKS = {
    # Choices, their number varying by example, judged with and without length normalization.
    "arc_tiny": (
        "multiple_choice",
        """
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{gold}}"
num_fewshot: 2
metric_list:
"""
        + ACCURACY
        + "  - {metric: acc_norm, aggregation: mean, higher_is_better: true}\n",
    ),
    # Choices of one token, which lm-eval answers from one pass over the question.
    "hellaswag_tiny": (
        "multiple_choice",
        """
doc_to_text: "{{question}}"
doc_to_choice: "{{letters}}"
doc_to_target: "{{gold}}"
target_delimiter: ""
metric_list:
"""
        + ACCURACY,
    ),
    # Partial evaluation: different contexts, same continuation.
    "winogrande_tiny": (
        "multiple_choice",
        """
doc_to_text: "{{half}}"
doc_to_choice: "{{contexts}}"
doc_to_target: "{{ending}}"
target_delimiter: " "
metric_list:
"""
        + ACCURACY,
    ),
    # The last word, greedy, with perplexity; some contexts exceed the model's length.
    "lambada_tiny": (
        "loglikelihood",
        """
doc_to_text: "{{passage}}"
doc_to_target: " {{answer}}"
target_delimiter: ""
metric_list:
  - {metric: perplexity, aggregation: perplexity, higher_is_better: false}
"""
        + ACCURACY,
    ),
    "gsm8k_tiny": (
        "generate_until",
        """
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
num_fewshot: 1
generation_kwargs: {until: ["z"], max_gen_toks: 5, do_sample: false}
metric_list:
  - {metric: exact_match, aggregation: mean, higher_is_better: true}
filter_list:
  - {name: first, filter: [{function: regex, regex_pattern: "(.)"}, {function: take_first}]}
""",
    ),
}
WHOLE_TEXTS = (
    "loglikelihood_rolling",
    """
doc_to_text: ""
doc_to_target: "{{passage}}"
metric_list:
  - {metric: word_perplexity, aggregation: weighted_perplexity, higher_is_better: false}
""",
)
"""Likelihoods of whole texts, cut where they exceed the model's length."""


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
    for name, (kind, rest) in TASKS.items():
        write_task(folder, name, kind, rest)
    return tuple(TASKS)


def write_task(folder: Path, name: str, kind: str, rest: str, questions: Path | None = None) -> None:
    questions = questions or folder / "questions.jsonl"
    head = HEAD.format(name=name, kind=kind, questions=questions, cache=folder / "cache")
    (folder / f"{name}.yaml").write_text(head + rest)


def write_whole_texts(folder: Path) -> str:
    write_task(folder, "texts_tiny", *WHOLE_TEXTS)
    return "texts_tiny"


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
