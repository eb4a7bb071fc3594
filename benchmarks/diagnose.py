"""Measure the seconds and peak memory of each part of a diagnosis on a model of SmolLM2-135M's shape.

    python benchmarks/diagnose.py                   # 30 layers of width 576, a vocabulary of 49,152, random weights
    python benchmarks/diagnose.py --tokens 2000     # more text
    python benchmarks/diagnose.py --parts proxies,recovery

The text is random and short, and the two parts that grow with their settings are small (manipulation: two sizes;
recovery: two layers, one damage, three seeds, two steps): this measures memory, and
not how long a diagnosis of a real model takes. On Linux the peak is per part,
elsewhere of all parts so far.
"""

from __future__ import annotations

import argparse
import gc
import resource
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import torch
from sweep import smol_shape

from layerwise.data.batches import make_batches
from layerwise.data.text.tokens import Window
from layerwise.measure.gradients.proxies import proxies
from layerwise.measure.interventions.ablation import ablation
from layerwise.measure.interventions.perturbations import perturbation_curves
from layerwise.measure.interventions.predicted_weight_loss import predicted_weight_loss
from layerwise.measure.interventions.racing import racing
from layerwise.measure.language.evaluation_data import EvalData, sample
from layerwise.measure.recovery.finetuning import RecoveryRecipe
from layerwise.measure.recovery.recovery import recovery
from layerwise.measure.weights.deltas import deltas, weight_norms
from layerwise.measure.weights.predictability import predictability
from layerwise.stack import load


def random_reading(tokens: int, length: int = 9) -> EvalData:
    """Make documents of random tokens in short windows."""
    ids = torch.randint(0, 49152, (max(16, tokens // (length - 1)), length), generator=torch.Generator().manual_seed(1))
    windows = [Window(f"{row:04d}", "random", 0, tuple(ids[row].tolist()), 1, length) for row in range(len(ids))]
    return EvalData("random", "random", length, "next_token", make_batches(windows, 4096, 0))


def main() -> None:
    """Run every measure once and print its time and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=160, help="scored tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--parts", default="", help="only parts whose name is here, with commas between them")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    stack, reading = load(smol_shape()), random_reading(chosen.tokens)
    recipe = RecoveryRecipe(steps=2, every=1, batch_tokens=128, evaluation_tokens=64)
    measures: dict[str, Callable[[], object]] = {
        "proxies": partial(proxies, stack, reading),
        "norms": partial(weight_norms, stack),
        "deltas": partial(deltas, stack),
        "predictability": partial(predictability, stack),
        "predicted_weight_loss": partial(predicted_weight_loss, stack, reading),
        "ablation": partial(ablation, stack, reading),
        "racing": partial(racing, stack, reading),
        "manipulation": partial(
            perturbation_curves, stack, sample(reading, 64, 0), sizes=(0.1, 1.0), alphas=(0.0, 0.9)
        ),
        "recovery": partial(recovery, stack, reading, layers=(0, 15), treatments=("noise_50/layer",), recipe=recipe),
    }
    alone = peak()
    print(f"{'':30}{'seconds':>9}{'peak':>12}{'above the model':>18}", flush=True)
    print(f"{'the model alone':30}{'':>9}{alone:>9,.0f} MB", flush=True)
    for name, measure in measures.items():
        if chosen.parts and name not in chosen.parts.split(","):
            continue
        forget_peak()
        start = time.perf_counter()
        measure()
        seconds, most = time.perf_counter() - start, peak()
        print(f"{name:30}{seconds:9.0f}{most:>9,.0f} MB{most - alone:>+15,.0f} MB", flush=True)


def peak() -> float:
    """Return the peak memory of this process in MB, since `forget_peak` where supported."""
    with suppress(OSError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(float(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def forget_peak() -> None:
    """Reset the peak on Linux."""
    gc.collect()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


if __name__ == "__main__":
    main()
