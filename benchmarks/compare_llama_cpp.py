"""Compare layerwise and llama.cpp on plans of a GGUF file: losses and speed.

    python benchmarks/compare_llama_cpp.py MODEL.gguf [--float32] [--plans 1000] [--rows plans.jsonl]
    python benchmarks/compare_llama_cpp.py MODEL.gguf --speed --copy

Every plan is run by layerwise on the dequantized model in float32, and by llama.cpp (the package xllamacpp) on the file
that `layerwise.save` writes. Their difference is the mean absolute difference of the losses of a
text's tokens, in nats, relative to that of the trained order. A row is written per finished plan, and a
stopped command resumes with the plans without a row.

llama.cpp rounds the activations of a quantized matrix product to 8 bits; layerwise does not. With --float32 both read
a float32 copy of the model, which excludes these rounding differences.

--speed measures llama.cpp's tokens per second under plans, interleaved with the trained order, relative to what the
numbers of layers predict. --copy measures writing the trained order, interleaved with `cp`.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, GGUFValueType, GGUFWriter
from gguf.quants import dequantize

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from layerwise import load, save
from layerwise.gguf import GGUFFile, depth_of
from layerwise.plan import Plan
from llama_cpp import LlamaCpp

TEXT = """The river rises in the hills to the north of the town, where three small streams meet below an old stone
bridge. In spring the water is brown and fast; by August it is so low that children cross it on foot. A mill stood here
for two hundred years, and its wheel is still there, although nobody remembers when it last turned."""


LOST = 2.0
"""Nats per token above the trained order beyond which a model amplifies rounding differences."""


def random_plan(depth: int, draw: random.Random) -> Plan:
    """Draw a plan that skips layers, shuffles a window, repeats a block, or is any sequence."""
    layers = list(range(depth))
    match draw.randrange(4):
        case 0:
            layers = sorted(draw.sample(layers, draw.randint(depth // 2, depth - 1)))
        case 1:
            begin = draw.randrange(depth - 2)
            window = layers[begin : begin + draw.randint(2, depth // 2)]
            draw.shuffle(window)
            layers[begin : begin + len(window)] = window
        case 2:
            begin = draw.randrange(depth)
            layers[begin:begin] = layers[begin : begin + draw.randint(1, depth // 3)]
        case _:
            layers = [draw.randrange(depth) for _ in range(draw.randint(depth // 2, depth))]
    return Plan.of(layers)


def in_float32(source: Path, target: Path) -> Path:
    """Write the file `source` with every tensor dequantized to float32."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        if name == "general.architecture" or name.startswith("GGUF."):
            continue
        kind, *_ = field.types
        value = 0 if name == "general.file_type" else field.contents()
        writer.add_key_value(name, value, kind, field.types[-1] if kind == GGUFValueType.ARRAY else None)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


class Pair:
    """A model in both implementations, and a tokenized text."""

    def __init__(self, path: Path, folder: Path, tokens: int) -> None:
        self.path, self.written = path, folder / "plan.gguf"
        self.stack = load(path, dtype="float32", device="cpu")
        assert self.stack.tokenizer is not None
        self.tokens: list[int] = self.stack.tokenizer(TEXT)["input_ids"][:tokens]

    def losses(self, plan: Plan) -> np.ndarray[Any, np.dtype[np.float64]]:
        with torch.inference_mode(), self.stack.under(plan):
            logits = self.stack.model(torch.tensor([self.tokens])).logits[0, :-1].double()
        target = torch.tensor(self.tokens[1:])
        return np.asarray(torch.nn.functional.cross_entropy(logits, target, reduction="none").tolist())

    def row(self, plan: Plan) -> dict[str, object]:
        """Return both losses and their mean absolute difference."""
        save(self.path, plan, self.written, overwrite=True)
        with LlamaCpp(self.written) as model:
            other = model.losses(self.tokens)
        own = self.losses(plan)
        distance = float(np.abs(own - other).mean())
        return {"plan": str(plan), "layerwise": own.mean(), "llama.cpp": other.mean(), "apart": distance}


def compare(pair: Pair, count: int, rows: Path) -> None:
    """Write a row per plan, the trained order first, and print a summary."""
    depth, draw = pair.stack.depth, random.Random(0)
    plans = [Plan.identity(depth), *(random_plan(depth, draw) for _ in range(count))]
    done = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    known = {row["plan"] for row in done}
    for plan in dict.fromkeys(plans):
        if str(plan) not in known:
            done.append(pair.row(plan))
            with rows.open("a") as file:
                file.write(json.dumps(done[-1]) + "\n")
            report(done)
    report(done, end="\n")


def report(rows: list[dict[str, Any]], end: str = "\r") -> None:
    """Print the differences for plans that preserve a working model and for others."""
    trained, *others = rows
    parts = []
    for name, works in ((f"that lose less than {LOST} nats", True), ("that lose more", False)):
        multiples = sorted(
            row["apart"] / trained["apart"]
            for row in others
            if (row["layerwise"] < trained["layerwise"] + LOST) is works
        )
        if multiples:
            parts.append(
                f"{len(multiples)} plans {name}: {statistics.median(multiples):.2f} times the difference of the "
                f"trained order (median), {multiples[-1]:.2f} at most, {sum(each > 2 for each in multiples)} above 2"
            )
    print("; ".join(parts), end=end, flush=True)


def seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def speed(path: Path, folder: Path, rounds: int) -> None:
    """Print tokens per second under plans, relative to the trained order's scaled by the number of layers."""
    depth = depth_of(GGUFFile.open(path))
    thirds = depth // 3
    texts = (f"1-{depth - 1}", f"0-{thirds - 1} {2 * thirds}-{depth - 1}", f"0-{depth - 1} {thirds}-{depth - 1}")
    names = {"trained": path}
    for number, text in enumerate(texts):
        names[text] = folder / f"{number}.gguf"
        save(path, text, names[text], overwrite=True)
    models = {name: LlamaCpp(each, positions=320) for name, each in names.items()}
    prompt = [random.Random(1).randrange(256, models["trained"].vocabulary) for _ in range(256)]

    def read(model: LlamaCpp) -> None:
        model.forget()
        model.decode(prompt)

    def generate(model: LlamaCpp) -> None:
        for token in prompt[:32]:
            model.decode([token])

    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for _ in range(rounds + 1):
        for name in random.sample(list(names), len(names)):
            reading = seconds(lambda name=name: read(models[name]))  # type: ignore[misc]
            times[name].append((reading, seconds(lambda name=name: generate(models[name]))))  # type: ignore[misc]
    for text in texts:
        layers = models[text].depth
        for kind, what in enumerate(("reading 256 tokens", "generating 32")):
            pairs = zip(times["trained"][1:], times[text][1:], strict=True)
            ratio = statistics.median(one[kind] / other[kind] for one, other in pairs)
            share = ratio * layers / depth
            print(
                f"{text}: {what}, {ratio:.3f} times the tokens per second for {layers} of {depth} layers: {share:.3f}"
            )


def copy(path: Path, folder: Path, rounds: int) -> None:
    """Print the time of writing the trained order relative to `cp`, interleaved."""
    plan, copied, written = f"0-{depth_of(GGUFFile.open(path)) - 1}", folder / "copied.gguf", folder / "written.gguf"
    ratios = []
    for _ in range(rounds):
        copied.unlink(missing_ok=True)
        written.unlink(missing_ok=True)
        one = seconds(lambda: subprocess.run(["cp", path, copied], check=True))
        other = seconds(lambda: save(path, plan, written))
        ratios.append(other / one)
    print(f"writing the trained order takes {statistics.median(ratios):.2f} times as long as cp, of {rounds} rounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--plans", type=int, default=1000)
    parser.add_argument("--rows", type=Path, default=Path("plans.jsonl"))
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--folder", type=Path, help="where files of plans are written; by default a temporary one")
    parser.add_argument("--float32", action="store_true", help="compare on a copy with dequantized tensors")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--copy", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        if options.speed:
            speed(options.model, Path(folder), options.rounds)
        if options.copy:
            copy(options.model, Path(folder), options.rounds)
        if not options.speed and not options.copy:
            path = in_float32(options.model, Path(folder) / "float32.gguf") if options.float32 else options.model
            compare(Pair(path, Path(folder), options.tokens), options.plans, options.rows)


if __name__ == "__main__":
    main()
