"""Compare streaming a plan between safetensors files with `cp` of the input: time and memory.

    python benchmarks/save_stream.py [--folder /tmp/save_stream] [--rounds 5] [--large]

A Llama of 12 layers (188 MB in float32, random weights) is written with layers dropped, moved and repeated, by the
command `layerwise save --no-prove`; with --large also a sharded one of 4 GB. Rounds are interleaved with `cp -r`. The
processor time and the largest resident memory of a command are those that the system counts for it and its children.
"Writing" is what follows startup: reading headers and writing the directory, timed inside the process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

BLOCK = os.urandom(1 << 24)


def make_model(folder: Path, width: int, depth: int, vocabulary: int, shard: int) -> int:
    """Write a Llama with random weights shard by shard; return the bytes of its tensors."""
    hidden = 4 * width
    layer = {
        **{f"self_attn.{name}_proj.weight": (width, width) for name in "qkvo"},
        **{f"mlp.{name}_proj.weight": (hidden, width) for name in ("gate", "up")},
        "mlp.down_proj.weight": (width, hidden),
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, width)}
    for number in range(depth):
        shapes |= {f"model.layers.{number}.{name}": shape for name, shape in layer.items()}
    shapes |= {"model.norm.weight": (width,), "lm_head.weight": (vocabulary, width)}
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": width,
        "intermediate_size": hidden,
        "num_hidden_layers": depth,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "vocab_size": vocabulary,
        "dtype": "float32",
        "tie_word_embeddings": False,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    sizes = {name: 4 * _product(shape) for name, shape in shapes.items()}
    shards: list[list[str]] = [[]]
    for name, size in sizes.items():
        if shards[-1] and sum(sizes[each] for each in shards[-1]) + size > shard:
            shards.append([])
        shards[-1].append(name)
    placed = {}
    for number, names in enumerate(shards, start=1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{number:05}-of-{len(shards):05}.safetensors"
        _write(folder / file, {name: shapes[name] for name in sorted(names)})
        placed |= dict.fromkeys(names, file)
    if len(shards) > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    return sum(sizes.values())


def _product(shape: Sequence[int]) -> int:
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def _write(file: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    header, end = {}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 4 * _product(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as stream:
        stream.write(len(text).to_bytes(8, "little") + text)
        for begin in range(0, end, len(BLOCK)):
            stream.write(BLOCK[: min(len(BLOCK), end - begin)])


def measured(command: Sequence[str]) -> tuple[float, float, int]:
    """Return seconds, processor seconds and peak resident kilobytes of a command and its children."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss


WRITING = """
import sys, time
from layerwise.checkpoint import save, stream
start, spent = stream.visit_config, [0.0, 0.0]
def timed(*task):
    begin = time.perf_counter(), time.process_time()
    result = start(*task)
    spent[0] += time.perf_counter() - begin[0]
    spent[1] += time.process_time() - begin[1]
    return result
stream.visit_config = timed
save(sys.argv[4], "0-1", sys.argv[5], prove=False)  # imports what is imported late
spent[:] = 0.0, 0.0
begin = time.perf_counter(), time.process_time()
save(sys.argv[1], sys.argv[2], sys.argv[3], prove=False)
print(time.perf_counter() - begin[0] - spent[0], time.process_time() - begin[1] - spent[1])
"""


def writing(model: Path, plan: str, out: Path, tiny: Path) -> tuple[float, float, int]:
    """Return seconds and processor seconds of streaming alone, without startup."""
    command = [sys.executable, "-c", WRITING, str(model), plan, str(out), str(tiny), str(out.with_name("first"))]
    ended = subprocess.run(command, check=True, capture_output=True, text=True)
    shutil.rmtree(out.with_name("first"))
    wall, cpu = map(float, ended.stdout.split())
    return wall, cpu, 0


def compare(name: str, folder: Path, tiny: Path, plan: str, rounds: int, options: Sequence[str] = ()) -> None:
    """Print the time and memory of `cp` and `layerwise save`, interleaved."""
    out = folder.with_name("out")

    def save(model: Path, text: str) -> tuple[float, float, int]:
        given = ["--plan", text, "--output", str(out), "--no-prove", "--quiet", *options]
        return measured([sys.executable, "-m", "layerwise", "save", str(model), *given])

    ways = {
        "cp": lambda: measured(["cp", "-r", str(folder), str(out)]),
        "save": lambda: save(folder, plan),
        "start-up": lambda: save(tiny, "0-1"),
        "writing": lambda: writing(folder, plan, out, tiny),
    }
    results: dict[str, list[tuple[float, float, int]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, run in ways.items():
            os.sync()
            results[way].append(run())
            shutil.rmtree(out)
    print(f"{name}, plan {plan}: median (least) of {rounds}")
    for way, runs in results.items():
        wall, cpu, memory = zip(*runs, strict=True)
        print(
            f"  {way:9} {statistics.median(wall):7.2f} ({min(wall):.2f}) s, processor {statistics.median(cpu):6.2f} "
            f"({min(cpu):.2f}) s, resident {max(memory) / 1024:.0f} MB"
        )
    for label, number in (("seconds", 0), ("processor time", 1)):
        pairs = [write[number] / copy[number] for write, copy in zip(results["writing"], results["cp"], strict=True)]
        least = [min(run[number] for run in results[way]) for way in ("writing", "cp")]
        print(f"  writing / cp, {label}: {statistics.median(pairs):.2f} (pairs), {least[0] / least[1]:.2f} (least)")


def main() -> None:
    """Make the models and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/save_stream"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", action="store_true")
    given = parser.parse_args()
    make_model(given.folder / "tiny", 16, 2, 40, 10**9)
    size = make_model(given.folder / "small", 448, 12, 9450, 10**9)
    print(f"{size / 1e6:.0f} MB")
    for plan in ("0-11", "0-3 6-11", "0-7 6-11"):
        compare("188 MB", given.folder / "small", given.folder / "tiny", plan, given.rounds)
    if given.large:
        size = make_model(given.folder / "large", 2048, 14, 16000, 10**9)
        print(f"{size / 1e9:.1f} GB")
        compare("4 GB", given.folder / "large", given.folder / "tiny", "13-0", min(3, given.rounds))
    shutil.rmtree(given.folder)


if __name__ == "__main__":
    main()
