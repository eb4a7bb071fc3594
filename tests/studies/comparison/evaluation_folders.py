"""Simulated folders of lm-eval's `--log_samples`; `test_harness.py` compares their fields with lm-eval."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

DATE = "2026-01-31T12-00-00.000000"
MEANS = ("acc", "acc_norm", "exact_match", "f1")
Items = Sequence[Any]


def hashed(text: object) -> str:
    return hashlib.sha256(str(text).encode()).hexdigest()


def weighted(items: Items) -> float:
    return -sum(float(each[0]) for each in items) / sum(float(each[1]) for each in items)


def corpus_f1(items: Items) -> float:
    hits, right, given = (sum(each) for each in zip(*((a * b, a, b) for a, b in items), strict=True))
    return 2 * hits / (right + given)


AGGREGATES: Mapping[str, Callable[[Items], float]] = {
    **dict.fromkeys(MEANS, lambda items: sum(map(float, items)) / len(items)),
    "corpus_f1": corpus_f1,
    "perplexity": lambda items: math.exp(-float(np.mean(items))),
    "word_perplexity": lambda items: math.exp(weighted(items)),
    "bits_per_byte": lambda items: weighted(items) / math.log(2),
    "mcc": lambda items: 0.123,
    "bleu": lambda items: 31.4,
}
LESS = ("perplexity", "word_perplexity", "bits_per_byte")


def samples_of(values: Mapping[str, Items], task: str = "task", filtered: str = "none") -> list[dict[str, Any]]:
    lines = []
    for number in range(len(next(iter(values.values())))):
        document, prompt = {"question": f"{task} {number}?"}, f"Question: {task} {number}?"
        arguments = {"gen_args_0": {"arg_0": prompt, "arg_1": " yes"}, "gen_args_1": {"arg_0": prompt, "arg_1": " no"}}
        lines.append(
            {
                "doc_id": number,
                "doc": document,
                "target": "0",
                "arguments": arguments,
                "resps": [[["-1.0", "False"]]],
                "filtered_resps": [["-1.0", "False"]],
                "filter": filtered,
                "metrics": list(values),
                "doc_hash": hashed(json.dumps(document, indent=2)),
                "prompt_hash": hashed(prompt),
                "target_hash": hashed("0"),
                **{name: items[number] for name, items in values.items()},
            }
        )
    return lines


class Evaluation:
    def __init__(self, tasks: Mapping[str, Mapping[str, Items]], model: str = "base") -> None:
        self.samples = {task: samples_of(values, task) for task, values in tasks.items()}
        self.results: dict[str, Any] = {
            "results": {},
            "group_subtasks": {},
            "configs": {},
            "versions": {},
            "n-shot": {},
            "higher_is_better": {},
            "n-samples": {},
            "config": {"model": "hf", "model_args": {"pretrained": model}, "limit": None, "gen_kwargs": None},
            "task_hashes": {},
            "lm_eval_version": "0.4.13",
            "system_instruction": None,
            "chat_template": None,
            "chat_template_sha": None,
            "fewshot_as_multiturn": None,
            "model_name": model,
        }
        for task, values in tasks.items():
            metrics = [{"metric": name, "aggregation": "mean", "higher_is_better": name not in LESS} for name in values]
            stated = {f"{name},none": AGGREGATES[name](items) for name, items in values.items()}
            about = {
                "results": {"name": task, "sample_len": 0, **stated, "acc_stderr,none": "N/A"},
                "configs": {"task": task, "output_type": "multiple_choice", "metric_list": metrics, "repeats": 1},
                "versions": 1.0,
                "n-shot": 0,
                "higher_is_better": {name: name not in LESS for name in values},
                "n-samples": {"original": len(self.samples[task]), "effective": len(self.samples[task])},
                "task_hashes": self.all_hash(task),
            }
            for name, value in about.items():
                self.results[name][task] = value

    def all_hash(self, task: str) -> str:
        return hashed(
            "".join(each["doc_hash"] + each["prompt_hash"] + each["target_hash"] for each in self.samples[task])
        )

    def copy(self) -> Evaluation:
        return deepcopy(self)

    def write(self, folder: Path, date: str = DATE) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"results_{date}.json").write_text(json.dumps(self.results, indent=2))
        for task, lines in self.samples.items():
            text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
            (folder / f"samples_{task}_{date}.jsonl").write_text(text, encoding="utf-8")
        return folder


def accuracies(both: int, gained: int, lost: int, documents: int) -> tuple[list[int], list[int]]:
    first = [1] * both + [0] * gained + [1] * lost
    second = [1] * both + [1] * gained + [0] * lost
    return [each + [0] * (documents - len(each)) for each in (first, second)]  # type: ignore[return-value]
