"""Sweeps on Ray against one process: how much faster, the same bits, and nothing lost when processes are killed.

    python benchmarks/ray_sweep.py speed                 # leave-one-out of 30 layers: 2 workers and 1 process, in turns
    python benchmarks/ray_sweep.py bits                  # five models: rows of 2 workers and of 1 process
    python benchmarks/ray_sweep.py kills --times 20      # driver, a worker, half of the workers: SIGKILL in mid-sweep

One process and every worker compute with one thread. The speed is that of the sweep, with the model open on both sides;
what it takes to start Ray and to open the model in the workers is printed beside it. A killed run is gone on with, by
the workers or by one process, and its rows are compared with those of a sweep that nothing disturbed.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

import layerwise
from layerwise.experiments.cluster.workers import OPENS, as_workers_compute, shared_by
from layerwise.experiments.engines.steps import Outline
from layerwise.experiments.experiment import Inputs
from layerwise.experiments.reporter import Silent
from layerwise.experiments.sweep.config import Sweep
from layerwise.experiments.sweep.run import SweepUnit
from layerwise.measure.interventions.sweep import partition_of, sweep
from layerwise.measure.workers import Spread
from layerwise.results import Run
from layerwise.results.rows import Loss
from layerwise.stack import Stack, load
from layerwise.swarm.cluster.connection import Connection
from layerwise.swarm.cluster.workers import RayWorkers

TINY: dict[str, dict[str, Any]] = {
    "llama": {"num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 2},
    "gpt2": {"n_embd": 32, "n_layer": 5, "n_head": 4},
    "gemma2": {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8},
    "mamba": {"num_hidden_layers": 4, "state_size": 8},
}
"""Tiny models with random weights, beside the demo: a decoder, one with learned positions, one with two kinds of
attention, and one without attention."""


def random_stack(kind: str, **settings: Any) -> Stack:
    """A model of a type of transformers with random weights and the demo's tokenizer."""
    torch.manual_seed(0)
    tokenizer = load("demo").tokenizer
    config = transformers.AutoConfig.for_model(
        kind,
        vocab_size=len(tokenizer),
        initializer_range=0.1,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **{"hidden_size": 32, "intermediate_size": 64, **settings},
    )
    return load(transformers.AutoModelForCausalLM.from_config(config).eval(), tokenizer=tokenizer)


def prepared(stack: Stack, **options: Any) -> tuple[Sweep, SweepUnit, Inputs]:
    """A sweep of an opened model on the demo's text."""
    config = Sweep(model=stack.source.name, similarity=False, ray="local", workers=2, **options)
    corpus = layerwise.demo_corpus()
    return config, SweepUnit(config, stack, corpus), Inputs(stack, corpus)


def in_order(rows: Sequence[Loss]) -> list[Loss]:
    """Rows in an order that does not depend on who computed them."""
    return sorted(rows, key=lambda row: (row.plan, row.task, row.document, row.window))


def seconds(work: Callable[[], Any]) -> float:
    """How long `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def speed(options: argparse.Namespace) -> None:
    """Pairs of sweeps, in turns, and the ratio of their medians."""
    stack = random_stack(
        "llama",
        hidden_size=options.width,
        intermediate_size=3 * options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=8,
        num_key_value_heads=4,
    )
    config, ready, inputs = prepared(
        stack, families=("leave_one_out",), tokens=options.tokens, batch_tokens=options.batch_tokens
    )
    batches = len(ready.text.batches)
    print(f"leave-one-out of {stack.depth} layers, width {options.width}: {len(ready.plans)} plans, {batches} batches")
    parted = partition_of(stack, ready.plans, ready.text, 2)
    print(f"2 workers: +{parted.duplicates:.1%} of the work, bound {parted.bound(2):.2f} x")
    start = time.perf_counter()
    with RayWorkers("local", 2) as workers:
        print(f"Ray started in {time.perf_counter() - start:.1f} s")
        spread = Spread(workers, OPENS, shared_by(config, Outline(ready.manifest, ready.says), inputs))

        def whole() -> list[Loss]:
            return sweep(stack, ready.plans, ready.text)

        def divided() -> list[Loss]:
            return sweep(stack, ready.plans, ready.text, spread=spread)

        opened = seconds(lambda: sweep(stack, ready.plans[:1], ready.text, spread=spread))
        print(f"workers opened the model (and ran one plan) in {opened:.1f} s")
        assert in_order(whole()) == in_order(divided())
        sides: list[tuple[float, float, float, float]] = []
        processes = (os.getpid(), *own_workers())
        for _ in range(options.rounds):
            busy = [*map(processor_seconds, processes)]
            one = seconds(whole)
            after = [*map(processor_seconds, processes)]
            two = seconds(divided)
            end = [*map(processor_seconds, processes)]
            dearest = max(last - first for first, last in zip(after[1:], end[1:], strict=True))
            sides.append((one, two, after[0] - busy[0], dearest))
            print(
                f"  {one:.2f} s in one process ({after[0] - busy[0]:.2f} s of processor), {two:.2f} s by two workers "
                f"({dearest:.2f} s of processor of the busier one, {end[0] - after[0]:.2f} s of this process)",
                flush=True,
            )
    one, two, alone, dearest = (statistics.median(each) for each in zip(*sides, strict=True))
    print(f"{one:.2f} s / {two:.2f} s = {one / two:.2f} x (medians of {options.rounds}; bound {parted.bound(2):.2f} x)")
    print(
        f"in processor seconds: {alone:.2f} / {dearest:.2f} = {alone / dearest:.2f} x, whatever else the machine does"
    )


def bits(options: argparse.Namespace) -> None:
    """The rows of five models, computed twice."""
    stacks = {"demo": load("demo"), **{kind: random_stack(kind, **settings) for kind, settings in TINY.items()}}
    with RayWorkers("local", 2) as workers:
        for name, stack in stacks.items():
            config, ready, inputs = prepared(
                stack,
                families=("leave_one_out", "swap_adjacent"),
                plan=("0 (1|2)*2 3",),
                tokens=2_000,
                batch_tokens=512,
            )
            spread = Spread(workers, OPENS, shared_by(config, Outline(ready.manifest, ready.says), inputs))
            one = in_order(sweep(stack, ready.plans, ready.text))
            two = in_order(sweep(stack, ready.plans, ready.text, spread=spread))
            threads = torch.get_num_threads()
            torch.set_num_threads(2)
            other = in_order(sweep(stack, ready.plans, ready.text))
            torch.set_num_threads(threads)
            differing = sum(a != b for a, b in zip(one, other, strict=True))
            print(
                f"{name}: {len(one):,} rows of {len(ready.plans)} plans, "
                f"{'equal to the bit' if one == two else 'NOT EQUAL'}; "
                f"one process with 2 threads differs in {differing:,} rows",
                flush=True,
            )


# -- kills --------------------------------------------------------------------------------------------------------


def own_workers() -> list[int]:
    """The processes of workers whose cluster this process started: children of its children."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            title = (path / "cmdline").read_bytes()
            if title.startswith(b"ray::Worker") and parent(parent(int(path.name))) == os.getpid():
                found.append(int(path.name))
        except (OSError, IndexError):
            continue
    return sorted(found)


def processor_seconds(process: int) -> float:
    """The processor time that a process has used."""
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def parent(process: int) -> int:
    """The process that started `process`."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def killed_workers(ready: SweepUnit, spread: Spread, folder: Path, count: int, chance: random.Random) -> None:
    """One sweep into a run, during which `count` workers are killed at once, when a random share is stored."""
    victims: list[int] = []
    with Run.create(folder, ready.manifest) as run:
        due = len(ready.plans) * len(ready.text.windows)
        after = chance.uniform(0.05, 0.9) * due

        def sink(rows: Sequence[Loss]) -> None:
            run.store.add_losses(rows)
            if not victims and run.store.count_losses() >= after:
                victims.extend(chance.sample(own_workers(), count))
                for process in victims:
                    os.kill(process, signal.SIGKILL)

        sweep(ready.stack, ready.plans, ready.text, sink=sink, finished=run.store.finished, spread=spread)
        assert len(victims) == count


def killed_driver(config: Sweep, ready: SweepUnit, folder: Path, address: str, chance: random.Random) -> str:
    """A sweep by a process of its own, killed at a random moment; then gone on with by one process, here."""
    command = [
        sys.executable,
        "-m",
        "layerwise",
        "sweep",
        config.model,
        "--no-similarity",
        "--run",
        str(folder),
        "--families",
        ",".join(config.families),
        "--batch-tokens",
        str(config.batch_tokens),
        "--tokens",
        str(config.tokens),
        "--ray",
        address,
        "--workers",
        "2",
        "--quiet",
    ]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    due = len(ready.plans) * len(ready.text.windows)
    after = chance.uniform(0.02, 0.9) * due
    while driver.poll() is None:
        if (folder / "run.sqlite").exists() and stored(folder) >= after:
            driver.kill()
            break
        time.sleep(0.02)
    assert driver.wait() == -signal.SIGKILL, driver.stderr and driver.stderr.read()
    left = stored(folder)
    with Run.resume_or_create(folder, ready.manifest) as run:
        sweep(ready.stack, ready.plans, ready.text, sink=run.store.add_losses, finished=run.store.finished)
    return f"{left:,} of {due:,} rows were kept"


def stored(folder: Path) -> int:
    """How many rows a run holds."""
    try:
        with Run.open(folder) as run:
            return run.store.count_losses()
    except layerwise.errors.RunError:
        return 0


def rows_of(folder: Path) -> list[Loss]:
    """The rows of a run."""
    with Run.open(folder) as run:
        return in_order(list(run.store.losses()))


@contextmanager
def watched() -> Iterator[None]:
    """End this process where it hangs: a lost piece would be waited for in vain."""
    timer = threading.Timer(300, lambda: os._exit(70))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def kills(options: argparse.Namespace) -> None:
    """Kill, go on, compare; as often as it was asked for."""
    config = Sweep(
        model="demo",
        families=("leave_one_out", "swap_adjacent"),
        tokens=options.tokens,
        batch_tokens=256,
        similarity=False,
        ray="local",
        workers=2,
    )
    ready = SweepUnit(config, config.open_model(Silent()), config.corpus(config.model))
    inputs, chance = Inputs(), random.Random(0)
    connection = Connection("local", 6)
    wanted = in_order(sweep(ready.stack, ready.plans, ready.text))
    with tempfile.TemporaryDirectory() as name:
        for what, workers, count in (("a worker", 2, 1), ("half of the workers", 4, 2)):
            if options.only and options.only not in what:
                continue
            with RayWorkers("local", workers) as some:
                spread = Spread(some, OPENS, shared_by(config, Outline(ready.manifest, ready.says), inputs))
                sweep(ready.stack, ready.plans[:1], ready.text, spread=spread)
                equal = 0
                for number in range(options.times):
                    folder = Path(name) / f"{count}-{number}"
                    with watched():
                        work = partial(killed_workers, ready, spread, folder, count, chance)
                        took = seconds(work)
                    equal += rows_of(folder) == wanted
                    print(f"{what} killed, {number + 1}: {took:.1f} s, {equal} runs with the same rows", flush=True)
        if not options.only or options.only == "driver":
            address = connection.ray.get_runtime_context().gcs_address
            equal = 0
            for number in range(options.times):
                folder = Path(name) / f"driver-{number}"
                with watched():
                    said = killed_driver(config, ready, folder, address, chance)
                equal += rows_of(folder) == wanted
                print(f"the driver killed, {number + 1}: {said}; {equal} runs with the same rows", flush=True)
    connection.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("speed", "bits", "kills"))
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--tokens", type=int, default=4_000)
    parser.add_argument("--batch-tokens", type=int, default=2_048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--only", help="driver, worker or half")
    options = parser.parse_args()
    with as_workers_compute(Sweep(model="demo", ray="local")):
        {"speed": speed, "bits": bits, "kills": kills}[options.what](options)


if __name__ == "__main__":
    main()
