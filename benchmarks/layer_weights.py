"""Compare a training step with learned layer weights (ELC-BERT) with one of its backbone.

    python benchmarks/layer_weights.py [--rounds 5] [--size small] [--batch 32] [--length 128] [--threads 1]
        [--device cpu]

Three models of one shape are trained on the same noise: `ltg`, whose layers read only the preceding state; `elc`,
whose layers read a weighted sum of all preceding states; and `elc` with that sum written as a plain loop.
Every round times one step of each (forward, backward, AdamW) in a changing order; it prints
the ratio of medians and the range of ratios over rounds. Then it times the sums alone, forward and
backward, and counts how often each implementation moves a whole state. On a CPU the
seconds are processor time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from layerwise.models import ElcConfig, ElcForMaskedLM
from layerwise.stack import history
from layerwise.stack.history import DepthHistory

Seconds = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Moves:
    """Numbers of state reads and writes in all sums of one step."""

    forward: int
    backward: int


def moves(depth: int) -> dict[str, Moves]:
    """Count the moves of summing n + 1 states for layer n (from 0): `reads` in all, `depth` of them first of their sum.

    The loop: a first product reads one and writes one; every other term is a product (2) and an addition (3). Back, a
    read costs a scaled gradient (2), a product for the weight (3) and its sum (1); all but one gradient of a state are
    added to what is there (3). In blocks nothing but the states, and each sum once: forward, back for the products of
    weights, and back once more for the gradients. Where blocks are not used (an accelerator) a sum is read and written
    for each term.
    """
    reads = depth * (depth + 1) // 2
    others = reads - depth
    return {
        "loop": Moves(2 * depth + 5 * others, 6 * reads + 3 * others),
        "in blocks": Moves(reads + depth, 2 * (reads + depth)),
        "not in blocks": Moves(2 * depth + 3 * others, 2 * reads + 2 * depth + 3 * others),
    }


def loop(weights: Tensor, states: Sequence[Tensor]) -> Tensor:
    """Compute the weighted sum as a plain loop."""
    total = weights[0] * states[0]
    for weight, state in zip(weights[1:], states[1:], strict=True):
        total = total + weight * state
    return total


@contextmanager
def looped() -> Iterator[None]:
    """Sum by the plain loop within the context."""
    own = history.weighted_sum, history.shared
    history.weighted_sum, history.shared = loop, lambda state: state
    try:
        yield
    finally:
        history.weighted_sum, history.shared = own


class Pass(torch.autograd.Function):
    """A layer that does nothing, to time the sums alone."""

    @staticmethod
    def forward(ctx: object, state: Tensor) -> Tensor:
        return state.view_as(state)

    @staticmethod
    def backward(ctx: object, gradient: Tensor) -> Tensor:
        return gradient


def timed(work: Callable[[], object], device: torch.device) -> float:
    """Time `work`: processor time on a CPU, otherwise until the device is synchronized."""
    if device.type == "cpu":
        begun = time.process_time()
        work()
        return time.process_time() - begun
    wait: Callable[[], None] = torch.get_device_module(device).synchronize
    wait()
    begun = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - begun


class Training:
    """A model in training: `step` trains it once on its batch of noise."""

    def __init__(self, config: ElcConfig, batch: int, length: int, device: torch.device) -> None:
        torch.manual_seed(0)
        self.model = ElcForMaskedLM(config).to(device).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.ids = torch.randint(config.vocab_size, (batch, length)).to(device)
        self.labels = self.ids.where(torch.rand(batch, length).to(device) < 0.15, -100)

    def step(self) -> None:
        """Run forward, backward, and one optimizer step."""
        self.model(input_ids=self.ids, labels=self.labels).loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def sums(embedding: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Compute all sums of one forward pass, without layers."""
    kept = DepthHistory.of(embedding)
    for layer, each in enumerate(weights):
        last = Pass.apply(kept.read(each))
        kept = kept.then(layer, last)
    return last


def step_seconds(config: Callable[[str], ElcConfig], options: argparse.Namespace, device: torch.device) -> Seconds:
    """Time a step of each model, once per round."""
    shape = options.batch, options.length, device
    ltg, elc = (Training(config(variant), *shape) for variant in ("ltg", "elc"))

    def in_loop() -> None:
        with looped():
            elc.step()

    return in_rounds({"ltg": ltg.step, "elc": elc.step, "elc in a loop": in_loop}, options.rounds, device)


def sum_seconds(config: ElcConfig, options: argparse.Namespace, device: torch.device) -> Seconds:
    """Time the sums of a step, forward and backward, once per round."""
    shape = options.batch, options.length, config.hidden_size
    embedding = torch.randn(shape, device=device, requires_grad=True)
    gradient = torch.ones(shape, device=device)
    depth = config.num_hidden_layers
    weights = [torch.randn(n + 1, device=device).softmax(0).requires_grad_() for n in range(depth)]
    ends: dict[str, Tensor] = {}

    def forward(name: str) -> None:
        ends[name] = sums(embedding, weights)

    def backward(name: str) -> None:
        torch.autograd.grad(ends.pop(name), [embedding, *weights], gradient)

    found: Seconds = {f"{way} {name}": [] for name in ("mix", "loop") for way in ("forward", "backward")}
    for number in range(options.rounds + 1):
        for name in random.Random(number).sample(["mix", "loop"], 2):
            if name == "loop":
                with looped():
                    seconds = timed(partial(forward, name), device), timed(partial(backward, name), device)
            else:
                seconds = timed(partial(forward, name), device), timed(partial(backward, name), device)
            if number:
                found[f"forward {name}"].append(seconds[0])
                found[f"backward {name}"].append(seconds[1])
    return found


def in_rounds(ways: dict[str, Callable[[], object]], rounds: int, device: torch.device) -> Seconds:
    """Time each variant once per round, in a changing order, after a warm-up round."""
    found: Seconds = {name: [] for name in ways}
    for number in range(rounds + 1):
        order = list(ways)
        random.Random(number).shuffle(order)
        for name in order:
            seconds = timed(ways[name], device)
            if number:
                found[name].append(seconds)
    return found


def main() -> None:
    """Time the steps and the sums, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", default="small", help="tiny, small or base")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    config = partial(ElcConfig.of_size, options.size)
    shape = config(variant="elc")
    print(
        f"{shape.num_hidden_layers} layers of width {shape.hidden_size}, {options.batch} x {options.length} tokens, "
        f"{device}, {options.threads} threads, {options.rounds} rounds"
    )
    print_steps(step_seconds(lambda variant: config(variant=variant), options, device))
    print_sums(sum_seconds(shape, options, device))
    print_moves(shape, options.batch * options.length * shape.hidden_size * 4)


def print_steps(found: Seconds) -> None:
    """Print the step of each model, and its ratio to the backbone's."""
    plain = statistics.median(found["ltg"])
    print(f"ltg: {plain * 1000:.0f} ms per step")
    for name in list(found)[1:]:
        ratios = sorted(value / base for value, base in zip(found[name], found["ltg"], strict=True))
        ratio = statistics.median(found[name]) / plain
        print(f"{name}: {ratio:.3f} x (rounds {ratios[0]:.3f} to {ratios[-1]:.3f})")


def print_sums(found: Seconds) -> None:
    """Print the times of the sums alone."""
    for name, values in found.items():
        print(f"sums alone, {name}: {statistics.median(values) * 1000:.0f} ms")


def print_moves(config: ElcConfig, size: int) -> None:
    """Print the counted moves of each implementation."""
    for name, each in moves(config.num_hidden_layers).items():
        total = (each.forward + each.backward) * size / 1e9
        print(f"{name}: {each.forward} moves of a state forward, {each.backward} backward, {total:.2f} GB a step")


if __name__ == "__main__":
    main()
