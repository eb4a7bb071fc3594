"""Files of GLUE and SuperGLUE tasks as BabyLM and the Hub distribute them."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas

BABYLM = ("cola", "sst2", "mrpc", "qqp", "mnli", "mnli-mm", "qnli", "rte", "boolq", "multirc", "wsc")
"""BabyLM 2023."""

TASKS = (*BABYLM, "stsb", "wnli")

YEARS = ("2023", "2024")
_COLUMNS = {
    "cola": ("sentence",),
    "sst2": ("sentence",),
    "mrpc": ("sentence1", "sentence2"),
    "rte": ("sentence1", "sentence2"),
    "qqp": ("question1", "question2"),
    "mnli": ("premise", "hypothesis"),
    "mnli-mm": ("premise", "hypothesis"),
    "qnli": ("question", "sentence"),
    "boolq": ("question", "passage"),
    "multirc": ("paragraph", "question", "answer"),
    "stsb": ("sentence1", "sentence2"),
    "wnli": ("sentence1", "sentence2"),
}


def example(name: str, number: int) -> dict[str, Any]:
    label = number % 26 / 5 if name == "stsb" else number % (3 if name.startswith("mnli") else 2)
    if name == "wsc":
        text = f"{number} saw Pete, and Mark told him that he was late."
        spans = {"span1_text": "Mark", "span1_index": 4, "span2_text": "he", "span2_index": 8}
        return {"text": text, **spans, "idx": number, "label": label}
    return {**{column: f"w{number % 20} {column} {number}" for column in _COLUMNS[name]}, "idx": number, "label": label}


def names(name: str, year: str) -> tuple[str, str]:
    if year == "2024":
        return f"{name.removesuffix('-mm')}.train.jsonl", f"{name}.valid.jsonl"
    parts = {"mnli": "validation_matched", "mnli-mm": "validation_mismatched"}
    whole = name.removesuffix("-mm")
    return f"{whole}.train.json", f"{whole}.{parts.get(name, 'validation')}.json"


def write(folder: Path, name: str, year: str = "2024", *, train: int = 40, valid: int = 10) -> Path:
    first, second = names(name, year)
    start = 200 if name == "mnli-mm" else 100
    lines(folder / first, [example(name, number) for number in range(train)])
    lines(folder / second, [example(name, number) for number in range(start, start + valid)])
    return folder


def lines(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def hub(folder: Path, name: str, *, train: int = 40, valid: int = 10) -> Path:
    place = folder / name.removesuffix("-mm")
    part = {"mnli": "_matched", "mnli-mm": "_mismatched"}.get(name, "")
    start = 200 if part == "_mismatched" else 100
    parquet_file(place / "train-00000-of-00001.parquet", [example(name, number) for number in range(train)])
    rows = [example(name, number) for number in range(start, start + valid)]
    parquet_file(place / f"validation{part}-00000-of-00001.parquet", rows)
    parquet_file(place / f"test{part}-00000-of-00001.parquet", [{**row, "label": -1} for row in rows])
    return place


def parquet_file(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = pandas.DataFrame(rows)
    whole["label"] = whole["label"].astype("float32" if whole["label"].dtype.kind == "f" else "int64")
    whole.to_parquet(path, index=False)
