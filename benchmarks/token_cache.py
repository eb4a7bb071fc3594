"""Measure the second start of a pretraining on a large text: seconds to the first step, and memory per process.

    python benchmarks/token_cache.py --folder FOLDER [--words 100000000]

A text of generated sentences is written to FOLDER unless it exists, and `layerwise train elc --variants ltg` (size
tiny, 8 segments per step) is started on it. The first start fills the token cache in FOLDER/cache. The second start is
a new process with the same command, then two processes under torchrun. Bars: at most 15 seconds from the start of the
process to the end of the first step, including imports, and at most 200 MB more resident memory in each process than
with a text of a few thousand words and the same tokenizer. Mapped file pages count, although all processes share them.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

WORDS = 100_000_000
DOCUMENT = 40
"""Sentences in a document."""
FILE = 5_000_000
"""Words in a file."""
SECONDS, MEGABYTES = 15.0, 200.0
SYLLABLES = (
    "ba",
    "be",
    "di",
    "do",
    "fu",
    "ga",
    "he",
    "ki",
    "la",
    "lo",
    "ma",
    "mi",
    "na",
    "no",
    "pe",
    "ra",
    "ri",
    "sa",
    "so",
    "ta",
)


class Watch:
    """A reporter that prints time and memory after the first step and ends the process."""

    def __init__(self, began: float) -> None:
        self.began = began

    def log(self, text: str) -> None:
        print(f"    {time.time() - self.began:6.1f} s  {text}", file=sys.stderr, flush=True)

    def progress(self, label: str, share: float, seconds_left: float | None = None) -> None:
        if not label.startswith("ltg/0"):
            return
        end(self.began)

    def result(self, text: object) -> None:
        pass


def end(began: float) -> NoReturn:
    """Print time and memory, and end the process."""
    figures = {"seconds": time.time() - began, "processor": time.process_time(), **_memory()}
    print(json.dumps(figures), flush=True)
    os._exit(0)


def _memory() -> dict[str, float]:
    """Return the resident megabytes of this process, in total and without file pages."""
    lines = Path("/proc/self/status").read_text().splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return {name: int(fields[name].split()[0]) / 1e3 for name in ("VmRSS", "RssAnon")}


def work(text: Path, tokenizer: str | None, began: float) -> None:
    """Start the training and end after its first step."""
    from layerwise.train import elc

    with tempfile.TemporaryDirectory() as run:
        shared = Path(os.environ.get("BENCHMARK_RUN", run))
        options = {"variants": ("ltg",), "batch_size": 8, "steps": 10, "tokenizer": tokenizer, "device": "cpu"}
        try:
            elc(text, run=shared, reporter=Watch(began), **options)
        except RuntimeError:
            if os.environ.get("RANK", "0") == "0":
                raise
            end(began)  # the first process, which alone watches, has ended after the first step


def started(text: Path, folder: Path, tokenizer: Path | None = None, processes: int = 1) -> list[dict[str, float]]:
    """Start the training in new processes; return their outputs."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    arguments = [str(text), str(tokenizer or ""), str(time.time())]
    with tempfile.TemporaryDirectory() as run:
        variables = {
            "LAYERWISE_CACHE": str(folder / "cache"),
            "BENCHMARK_RUN": f"{run}/run",
            "OMP_NUM_THREADS": "1",
            "TOKENIZERS_PARALLELISM": "true",
        }
        command = [sys.executable, *launcher, __file__, "--work", *arguments]
        ended = subprocess.run(command, env={**os.environ, **variables}, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]


def write_text(folder: Path, words: int) -> Path:
    """Write missing files of documents, separated by <|endoftext|> lines."""
    text = folder / f"text-{words}"
    text.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    known = ["".join(draw.choices(SYLLABLES, k=1 + int(draw.expovariate(0.6)))) for _ in range(60_000)]
    weights = list(itertools.accumulate(1 / (10 + rank) for rank in range(len(known))))
    sentences = []
    for _ in range(200_000):
        chosen = draw.choices(known, cum_weights=weights, k=draw.randint(6, 24))
        sentences.append(" ".join([chosen[0].capitalize(), *chosen[1:]]) + draw.choice(".....?!"))
    mean = sum(len(each.split()) for each in sentences) / len(sentences)
    for number in range(-(-words // FILE)):
        path = text / f"{number:03}.txt"
        draw = random.Random(number + 1)
        if not path.is_file():
            count = int(min(FILE, words - number * FILE) / (mean * DOCUMENT)) + 1
            documents = ["\n".join(draw.choices(sentences, k=DOCUMENT)) for _ in range(count)]
            path.write_text("\n<|endoftext|>\n".join(documents) + "\n")
    return text


def main() -> None:
    """Write the text, start three times, and print the results and bars."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where the text and its cache are kept; by default nowhere")
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        text, tokenizer, began = options.work
        work(Path(text), tokenizer or None, float(began))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        print(f"writing {options.words:,} words to {folder}", flush=True)
        text, few = write_text(folder, options.words), write_text(folder, 5_000)
        print("first start", flush=True)
        (first,) = started(text, folder)
        print(f"  {first['seconds']:.1f} s to the end of the first step")
        (second,) = started(text, folder)
        tokenizer = next((folder / "cache/tokens").glob("*/tokenizer"))
        started(few, folder, tokenizer)
        (small,) = started(few, folder, tokenizer)
        many, base = started(text, folder, processes=2), started(few, folder, tokenizer, processes=2)
    for name, found in ((f"{options.words:,} words", second), ("5,000 words", small)):
        print(
            f"second start, {name}: {found['seconds']:.1f} s to the end of the first step, {found['processor']:.1f} s "
            f"of the processor (bar: {SECONDS:g} s)"
        )
    for what in ("VmRSS", "RssAnon"):
        more = max(each[what] for each in many) - min(each[what] for each in base)
        bar = f" (bar: {MEGABYTES:g} MB)" if what == "VmRSS" else ", without pages of files"
        print(f"two processes: at most {more:.0f} MB more in each{bar}")


if __name__ == "__main__":
    main()
