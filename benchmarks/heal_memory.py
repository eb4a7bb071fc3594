"""Compare the peak memory of healing by LoRA with full fine-tuning (bar: at most 0.6 times).

    python benchmarks/heal_memory.py

Each healing runs in a separate process, on a random Llama whose weights dominate (12 layers, 50 million weights; two
steps of 2 x 16 tokens). It measures the peak resident memory of training (VmHWM), minus that of the
process before the model is opened: Python, torch and transformers.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

PLAN = "0-4 8-11"
TEACHERS = ("none", "self")
METHODS = ("lora", "tail", "full")
MEGABYTE = 1e6


def measured(method: str, teacher: str) -> dict[str, float]:
    """Return the bytes of the weights and the peak above the initial memory, measured in a separate process."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from layerwise.data.splits import Examples, Splits
    from layerwise.plan import Plan
    from layerwise.stack import load
    from layerwise.train.heal.options import HealingOptions, healing_recipe
    from layerwise.train.recipe import Settings
    from layerwise.train.training import Base, train

    class Words(Examples):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
            ids = torch.randint(3, 1000, (16,), generator=torch.Generator().manual_seed(index))
            return {"input_ids": ids, "labels": ids}

    def opened() -> object:
        config = LlamaConfig(
            vocab_size=1000,
            hidden_size=512,
            intermediate_size=2048,
            num_hidden_layers=12,
            num_attention_heads=8,
            max_position_embeddings=64,
            use_cache=False,
        )
        return load(LlamaForCausalLM(config).eval())

    import peft  # noqa: F401  (imported before the measurement)

    from layerwise.train.heal import trainer  # noqa: F401

    torch.manual_seed(0)
    before = _resident()
    recipe = healing_recipe(
        method,
        Settings(epochs=1, batch_size=2, evals=1, learning_rate=1e-3),
        Plan.parse(PLAN),
        HealingOptions(method=method, teacher=teacher),  # type: ignore[arg-type]
    )
    words = Words()
    with tempfile.TemporaryDirectory() as folder:
        record = train(
            Base(opened, "random"),
            Splits("words", "digest", words, words, words),
            recipe,
            0,
            Path(folder),  # type: ignore[arg-type]
            arguments={"use_cpu": True, "save_strategy": "no", "load_best_model_at_end": False},
        )
    return {"peak": record.figures["peak_bytes"] - before, "learning": record.figures["learning_weights"]}


def _resident() -> int:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(lines["VmRSS"].split()[0]) * 1024


def main() -> None:
    for teacher in TEACHERS:
        peaks = {}
        for method in METHODS:
            command = [sys.executable, __file__, method, teacher]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            result = json.loads(output.splitlines()[-1])
            peaks[method] = result["peak"]
            print(
                f"{method:4}, teacher {teacher}: {result['learning'] / 1e6:.2f} million weights learn, "
                f"peak {result['peak'] / MEGABYTE:,.0f} MB",
                flush=True,
            )
        share = peaks["lora"] / peaks["full"]
        verdict = "met" if share <= 0.6 else "MISSED"
        print(f"teacher {teacher}: LoRA peaks at {share:.2f} of full fine-tuning (bar .60: {verdict})", flush=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        print(json.dumps(measured(*sys.argv[1:])))
    else:
        main()
