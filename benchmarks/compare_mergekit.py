"""Compare `layerwise save` and mergekit-yaml: tensors, time, memory and supported architectures.

    python -m venv /tmp/mk && /tmp/mk/bin/pip install torch mergekit       # a separate environment: the pins differ
    python benchmarks/compare_mergekit.py cost  --mergekit /tmp/mk/bin/mergekit-yaml    # 188 MB, interleaved rounds
    python benchmarks/compare_mergekit.py cases --mergekit /tmp/mk/bin/mergekit-yaml    # seven architectures, two plans
    python benchmarks/compare_mergekit.py plans --mergekit /tmp/mk/bin/mergekit-yaml    # it reads files written by
    layerwise

`cost` runs each command in a separate process with one thread, and prints its processor time, peak resident
memory and wall time, including startup; tensors are compared bit for bit. mergekit does not verify what
it writes, so it is compared with `--no-prove`; the default, which verifies the logits, is listed
too. `cases` tests whether transformers opens the result without missing or unexpected weights.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open

import layerwise
from layerwise.plan import Plan
from layerwise.plan.dialects import read_mergekit, write_mergekit
from layerwise.stack import load

TINY = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_hidden_layers": 8, "vocab_size": 97}
CASES: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 2},
    "gpt2": {"n_embd": 32, "n_layer": 8, "n_head": 4},
    "mixtral": {"num_key_value_heads": 2, "num_local_experts": 4},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "gemma2": {"num_key_value_heads": 2, "head_dim": 8},
    "smollm3": {"num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
    "vit": {"image_size": 16, "patch_size": 4},
}
PLANS = {"drop 2 of 8": "0-2 5-7", "grow 8 to 10": "0-4 3-7"}


@dataclass(frozen=True)
class Ended:
    """The exit code, output, time and memory of a command."""

    code: int
    printed: str
    processor: float
    memory: float
    clock: float


# A process begins with its parent's memory, so a small parent starts the measured command.
LAUNCHER = """
import resource, subprocess, sys, time
before = time.monotonic()
code = subprocess.call(sys.argv[1:])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"\\nMEASURED {code} {used.ru_utime + used.ru_stime} {used.ru_maxrss / 1000} {time.monotonic() - before}")
"""


def ended(*command: str | Path) -> Ended:
    """Run a command; times are in seconds and memory in megabytes."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    process = subprocess.run(
        [sys.executable, "-S", "-c", LAUNCHER, *map(str, command)],
        env=environment,
        check=True,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    printed, _, measured = process.stdout.rpartition("\nMEASURED ")
    code, *figures = measured.split()
    return Ended(int(code), printed, *map(float, figures))


def tensors(folder: Path) -> dict[str, torch.Tensor]:
    """Read all tensors of a checkpoint."""
    result = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, "pt") as opened:
            result |= {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    return result


def same(one: Path, other: Path) -> bool:
    """Return whether two checkpoints have bitwise equal tensors of the same types."""
    a, b = tensors(one), tensors(other)
    return a.keys() == b.keys() and all(
        a[name].dtype == b[name].dtype and torch.equal(a[name].view(torch.uint8), b[name].view(torch.uint8))
        for name in a
    )


def random_model(kind: str, folder: Path, seed: int = 0, **settings: Any) -> Path:
    """Save a model of a transformers type with random weights."""
    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, **{**TINY, **CASES.get(kind, {}), **settings})
    model_class(kind).from_config(config).save_pretrained(folder)
    return folder


def model_class(kind: str) -> Any:
    """Return the auto class for a model type."""
    return transformers.AutoModelForImageClassification if kind == "vit" else transformers.AutoModelForCausalLM


def save_command(file: Path, output: Path, *options: str) -> list[str | Path]:
    return [sys.executable, "-m", "layerwise", "save", "--from", file, "--output", output, "--quiet", *options]


def merge_command(program: str, file: Path, output: Path) -> list[str | Path]:
    return [program, file, output, "--quiet", "--no-write-model-card"]


def cost(program: str, rounds: int, home: Path) -> None:
    """Time writing 14 layers (214 MB) from 12 (188 MB), interleaved."""
    base = random_model(
        "llama",
        home / "base",
        hidden_size=512,
        intermediate_size=1408,
        num_attention_heads=8,
        num_hidden_layers=12,
        vocab_size=8192,
        num_key_value_heads=8,
    )
    load("demo").tokenizer.save_pretrained(base)
    file = home / "merge.yml"
    file.write_text(write_mergekit("0-7 6-11", str(base)))
    commands = {
        "mergekit-yaml": merge_command(program, file, home / "theirs"),
        "layerwise --no-prove": save_command(file, home / "ours", "--no-prove"),
        "layerwise (proved)": save_command(file, home / "proved"),
        "cp of the input": ["cp", "-r", base, home / "copy"],
    }
    runs: dict[str, list[Ended]] = {name: [] for name in commands}
    for _ in range(rounds):
        for name, command in commands.items():
            for folder in ("theirs", "ours", "proved", "copy"):
                if str(home / folder) in map(str, command):
                    shutil.rmtree(home / folder, ignore_errors=True)
            one = ended(*command)
            if one.code:
                sys.exit(f"{name} ended with {one.code}:\n{one.printed[-2000:]}")
            runs[name].append(one)
    print(f"medians of {rounds} interleaved rounds, one thread")
    print(f"{'':22}{'processor':>12}{'peak memory':>14}{'clock':>10}")
    medians = {}
    for name, ends in runs.items():
        medians[name] = [
            statistics.median(getattr(each, what) for each in ends) for what in ("processor", "memory", "clock")
        ]
        processor, memory, clock = medians[name]
        print(f"{name:22}{processor:10.2f} s{memory:11.0f} MB{clock:8.2f} s")
    theirs, ours, proved = (medians[name] for name in list(commands)[:3])
    print(
        f"layerwise / mergekit: processor {ours[0] / theirs[0]:.3f}, memory {ours[1] / theirs[1]:.3f}; "
        f"proved: processor {proved[0] / theirs[0]:.3f}, memory {proved[1] / theirs[1]:.3f}"
    )
    equal = same(home / "theirs", home / "ours") and same(home / "ours", home / "proved")
    print(f"{len(tensors(home / 'ours'))} tensors, equal in all three: {equal}")


def opened(folder: Path, layers: int) -> str:
    """Return whether transformers opens a checkpoint with the expected layers and every weight."""
    try:
        config = transformers.AutoConfig.from_pretrained(folder)
        auto: Any = (
            transformers.AutoModelForImageClassification
            if config.model_type == "vit"
            else transformers.AutoModelForCausalLM
        )
        model, report = auto.from_pretrained(folder, output_loading_info=True)
    except Exception as error:
        return f"does not open ({type(error).__name__})"
    wrong = [f"{len(names)} {what}" for what, names in report.items() if names]
    depth = model.config.num_hidden_layers
    if depth != layers:
        wrong.append(f"{depth} layers in the configuration, not {layers}")
    return f"wrong: {', '.join(wrong)}" if wrong else "opens, whole"


def alike(one: Path, other: Path) -> bool:
    """Return whether transformers makes equal models of two checkpoints with any tensor names."""
    try:
        first, second = (
            model_class(transformers.AutoConfig.from_pretrained(each).model_type).from_pretrained(each).state_dict()
            for each in (one, other)
        )
    except Exception:
        return False
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def cases(program: str, home: Path) -> None:
    """Each architecture under each plan, by both."""
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for kind in CASES:
        base = random_model(kind, home / kind)
        for name, plan in PLANS.items():
            file, theirs, ours = home / "merge.yml", home / f"{kind}-{len(name)}-mk", home / f"{kind}-{len(name)}-lw"
            file.write_text(write_mergekit(plan, str(base)))
            layers = len(Plan.parse(plan).steps())
            merged = ended(*merge_command(program, file, theirs), "--no-copy-tokenizer")
            recipe = read_mergekit(file.read_text())
            origin = layerwise.save(str(base), recipe.plan, ours)
            equal = "tensors equal" if same(theirs, ours) else "as loaded equal" if alike(theirs, ours) else "not equal"
            print(
                f"{kind:8} {name:13} mergekit: exit {merged.code}, {opened(theirs, layers)}; layerwise: "
                f"{opened(ours, layers)}, gap {origin.gap}; {equal}",
                flush=True,
            )


def plans(program: str, count: int, home: Path) -> None:
    """Random plans over one and two models: mergekit writes, from our file, what layerwise saves."""
    models = {name: str(random_model("llama", home / name, seed)) for seed, name in enumerate("ab")}
    chance, equal = random.Random(0), 0
    for number in range(count):
        names = [None] if number % 2 else ["a", "b"]
        words = []
        for _ in range(chance.randint(1, 4)):
            first, last, name = chance.randrange(8), chance.randrange(8), chance.choice(names)
            words.append(f"{name}:{first}-{last}" if name else f"{first}-{last}")
        plan, head = " ".join(words), None if number % 2 else chance.choice("ab")
        located: Any = models["a"] if number % 2 else models
        file, theirs, ours = home / "merge.yml", home / f"{number}-mk", home / f"{number}-lw"
        file.write_text(write_mergekit(plan, located, head=head))
        merged = ended(*merge_command(program, file, theirs), "--no-copy-tokenizer")
        layerwise.save(located, plan, ours, head=head, prove=False)
        good = merged.code == 0 and same(theirs, ours)
        equal += good
        print(f"{Plan.parse(plan)!s:60} head {head or 'a'}  {'equal' if good else 'DIFFERENT'}", flush=True)
    print(f"{equal} of {count} equal")


def main() -> None:
    """Run one of the comparisons."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cost", "cases", "plans"])
    parser.add_argument("--mergekit", default="mergekit-yaml", help="its command, in a separate environment")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        if given.what == "cost":
            cost(given.mergekit, given.rounds, home)
        elif given.what == "cases":
            cases(given.mergekit, home)
        else:
            plans(given.mergekit, given.count, home)


if __name__ == "__main__":
    main()
