"""Replicate the four founding papers at a given scale, in resumable pieces.

    python benchmarks/founding_papers.py NAME --data FOLDER --out FOLDER [--scale accelerator] [--seconds 600]

NAME is layershuffle, elc, growth, painters or all. Each is a list of resumable commands
that a piece runs in order for `--seconds`; the same call runs the next piece. Commands, times
and numbers of pieces are recorded in OUT/pieces.json.

DATA contains `images` (train, validation and test, a directory per class in each), `mix` (ten million words),
`books` (prose) and `blimp` (as `layerwise evaluate --data` reads it). `--scale cpu` fits two cores in a
night, `--scale accelerator` uses the papers' sizes in bfloat16.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

GRACE = 60.0
"""Seconds that a command has to store what it has, once it is asked to stop."""

ROOT = Path(__file__).resolve().parent

DECODER: Mapping[str, Mapping[str, Any]] = {
    "cpu": {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 12, "num_attention_heads": 4},
    "accelerator": {"hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 12},
}
"""The decoder that is trained here: a Llama of 11 and of 126 million weights with tied embeddings."""

CIFAR = "benchmarks/layershuffle_cifar10.py --images {data}/images --out {out}/cifar10 --seeds 3"
MIX = "train elc --text {data}/mix --variants ltg,elc --seeds 3 --run {out}/elc"
BLIMP = "evaluate {out}/elc --suite blimp --data {data}/blimp"
BOOKS = "--model {decoder} --tokenizer {tokenizer} --text {data}/books"
STUDY = f"run growth {BOOKS} --learning-rates 5e-4,1e-3,2e-3 --run {{out}}/growth"
STACKING = f"train growth {BOOKS} --seeds 3 --schedule stacking --run {{out}}/stacking"
TRAINING = f"train growth {BOOKS} --schedule uniform --no-baseline --run {{out}}/decoder"
TRAINED = "{out}/decoder/uniform/seed-0/model --text {data}/books"
SWEEP = f"sweep {TRAINED} --run {{out}}/sweep"
DIAGNOSIS = f"diagnose {TRAINED} --run {{out}}/diagnosis"

COMMANDS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "layershuffle": {
        "cpu": [
            f"{CIFAR} --preset cpu-whole --variants baseline,sequential,layershuffle,layershuffle-layerdrop,layerdrop"
        ],
        "accelerator": [f"{CIFAR} --preset gpu"],
    },
    "elc": {
        "cpu": [f"{MIX} --size tiny --vocabulary 8192 --steps 1500 --batch-size 32", BLIMP],
        "accelerator": [f"{MIX} --size small --precision bfloat16 --set compile=true", BLIMP],
    },
    "growth": {
        "cpu": [f"{STUDY} --steps 600 --batch-size 16 --max-length 128"],
        "accelerator": [
            f"{STUDY} --steps 2000 --batch-size 64 --precision bfloat16",
            f"{STACKING} --steps 20000 --batch-size 64 --max-epochs 100 --precision bfloat16",
        ],
    },
    "painters": {
        "cpu": [
            f"{TRAINING} --steps 1500 --batch-size 16 --max-length 128",
            f"{SWEEP} --tokens 20000 --families painters,looped",
            f"{DIAGNOSIS} --tokens 20000",
        ],
        "accelerator": [
            f"{TRAINING} --steps 20000 --batch-size 128 --max-epochs 20 --precision bfloat16",
            f"{SWEEP} --tokens 200000 --families painters,looped,gain_sweep",
            f"{DIAGNOSIS} --tokens 200000",
        ],
    },
}
"""The commands by experiment and scale; those of `layerwise` are written as a reader types them."""


def model_of(scale: str, data: Path, out: Path) -> tuple[Path, Path]:
    """Save the decoder's config and a tokenizer learned from the first book, once."""
    decoder, tokenizer = out / "decoder.json", out / "tokenizer"
    if not decoder.is_file():
        from transformers import LlamaConfig

        from layerwise.data.text.corpus import read_corpus
        from layerwise.data.text.vocabulary import train_bytepair

        books = sorted(path for path in (data / "books").iterdir() if path.is_file())
        learned = train_bytepair((each.text for each in read_corpus(books[0]).documents), 8192)
        learned.save_pretrained(tokenizer)
        config = LlamaConfig(
            vocab_size=len(learned),
            tie_word_embeddings=True,
            max_position_embeddings=512,
            bos_token_id=0,
            eos_token_id=0,
            pad_token_id=1,
            **DECODER[scale],
        )
        decoder.write_text(config.to_json_string(use_diff=False))
    return decoder, tokenizer


def piece(command: str, seconds: float) -> tuple[bool, float]:
    """Run one command with a time limit; return whether it completed and its seconds."""
    words = shlex.split(command)
    script = words[0].endswith(".py")
    start = [sys.executable, str(ROOT.parent / words[0])] if script else [sys.executable, "-m", "layerwise", words[0]]
    begun = time.monotonic()
    process = subprocess.Popen([*start, *words[1:]], start_new_session=True)
    try:
        process.wait(max(1.0, seconds))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return False, time.monotonic() - begun
    if process.returncode:
        raise SystemExit(f"this command ended with {process.returncode}:\n  {command}")
    return True, time.monotonic() - begun


def run(name: str, commands: Sequence[str], notes: Path, end: float) -> bool:
    """Run the rest of an experiment until `end` (a monotonic time); return whether it is complete."""
    noted: dict[str, Any] = json.loads(notes.read_text()) if notes.is_file() else {}
    for command in commands:
        entry = noted.setdefault(name, {}).setdefault(command, {"seconds": 0.0, "pieces": 0, "finished": False})
        if entry["finished"]:
            continue
        left = end - time.monotonic()
        if left < 1:
            return False
        print(f"{name}, piece {entry['pieces'] + 1} of: {command}", flush=True)
        entry["finished"], took = piece(command, left)
        entry["seconds"], entry["pieces"] = entry["seconds"] + took, entry["pieces"] + 1
        fresh = notes.with_suffix(".tmp")
        fresh.write_text(json.dumps(noted, indent=2) + "\n")
        fresh.replace(notes)
        if not entry["finished"]:
            return False
    return True


def main() -> None:
    """Run the next piece of an experiment, or of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=[*COMMANDS, "all"])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", choices=["cpu", "accelerator"], default="cpu")
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    options.out.mkdir(parents=True, exist_ok=True)
    for name in COMMANDS if options.name == "all" else [options.name]:
        needs_decoder = any("{decoder}" in command for command in COMMANDS[name][options.scale])
        decoder, tokenizer = model_of(options.scale, options.data, options.out) if needs_decoder else (Path(), Path())
        values = {"data": options.data, "out": options.out, "decoder": decoder, "tokenizer": tokenizer}
        commands = [command.format(**values) for command in COMMANDS[name][options.scale]]
        done = run(name, commands, options.out / "pieces.json", end)
        print(f"{name}: {'done' if done else 'to be continued by the same call'}", flush=True)


if __name__ == "__main__":
    main()
