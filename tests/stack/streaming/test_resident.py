"""Layers on the disk: the order of their readings, and how many are in memory."""

import copy
import threading
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from apart import apart
from conftest import tiny_llama
from layerwise.errors import CheckpointError, ModelError
from layerwise.measure.cost.memory import peak_bytes
from layerwise.measure.interventions.sweep import sweep
from layerwise.plan import Plan, families
from layerwise.stack import Stack, load
from layerwise.stack.executors.graph import Apply, Graph, build, inputs
from layerwise.stack.inputs import main_tensor
from layerwise.stack.streaming import files
from layerwise.stack.streaming.executor import ReadingSchedule, reading_schedule
from layerwise.stack.weights import layer_weights, weight_rows
from measure.interventions.test_sweep_pieces import text
from stack.random_plans import plans
from tier import by_tier, first_fast

PLAN = Plan.parse("0 4 (1|2|3):sum 2 5")
IDS = torch.arange(3, 27).view(2, 12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streamed")
    tiny_llama().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def whole(folder: Path) -> Stack:
    return load(folder)


@pytest.fixture
def streamed(folder: Path) -> Stack:
    return load(folder, resident_layers=2)


def in_memory(stack: Stack) -> int:
    return sum(not any(each.is_meta for each in stack.block(layer).parameters()) for layer in range(stack.depth))


@torch.no_grad()
def states(stack: Stack) -> tuple[Tensor, Tensor, Tensor]:
    captured = stack.capture(input_ids=IDS)
    with stack.under(PLAN):
        inside = main_tensor(stack.model(input_ids=IDS))
        written = stack.model.generate(IDS, max_new_tokens=3, do_sample=False)
    return stack.run(PLAN, captured), inside, written


def test_no_more_layers_are_in_memory_than_said(streamed: Stack) -> None:
    seen: list[int] = []
    for layer in range(streamed.depth):
        streamed.block(layer).mlp.register_forward_hook(lambda *_: seen.append(in_memory(streamed)))
    states(streamed)
    assert max(seen) == 2
    assert streamed.resident.cost.most_layers == 2
    assert streamed.resident.cost.most_bytes == 2 * max(streamed.resident.sizes)
    assert in_memory(load(streamed.source.name, resident_layers=1)) == 1


def test_weights_are_read_where_they_are_asked_for(whole: Stack, streamed: Stack) -> None:
    name = "mlp.up_proj.weight"
    assert torch.equal(layer_weights(streamed, 4)[name], layer_weights(whole, 4)[name])
    before = streamed.resident.cost.readings if streamed.resident else 0
    assert torch.equal(weight_rows(streamed, 5, name, 3, 9), layer_weights(whole, 5)[name][3:9])
    assert streamed.resident.cost.readings == before


def test_threads_wait_for_a_place(streamed: Stack, whole: Stack) -> None:
    found: dict[int, Tensor] = {}

    def run(number: int) -> None:
        with torch.no_grad():
            found[number] = streamed.run(Plan.parse("5-0"), streamed.capture(input_ids=IDS))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    with torch.no_grad():
        expected = whole.run(Plan.parse("5-0"), whole.capture(input_ids=IDS))
    assert all(torch.equal(each, expected) for each in found.values())
    assert len(found) == 3


@pytest.mark.parametrize("dtype", ["auto", "stored"])
def test_resident_layers_in_half_precision_have_the_same_bits(tmp_path: Path, dtype: str) -> None:
    tiny_llama().to(torch.bfloat16).save_pretrained(tmp_path)
    both = [load(tmp_path, dtype=dtype, device="cpu", resident_layers=most) for most in (None, 2)]
    assert both[0].dtype == both[1].dtype
    assert all(map(torch.equal, *map(states, both)))


def test_a_copy_is_aligned_as_the_file(whole: Stack) -> None:
    """Kernels may round differently with memory alignment, and a model in memory uses the file's."""
    memory = torch.arange(40, dtype=torch.float32)
    for start in range(3):
        copied = files._copied(memory[start : start + 20], torch.float32, torch.device("cpu"))
        assert torch.equal(copied, memory[start : start + 20])
        assert copied.data_ptr() % 64 == memory[start:].data_ptr() % 64
        assert copied.data_ptr() != memory[start:].data_ptr()


def test_models_not_readable_by_layer_are_refused(streamed: Stack) -> None:
    with pytest.raises(ModelError, match="a model whose layers are read from disk cannot be copied"):
        copy.deepcopy(streamed)
    with pytest.raises(ModelError, match="resident_layers requires a folder or hub id"):
        load(tiny_llama(), resident_layers=2)
    with pytest.raises(ModelError, match="resident_layers must be at least 1"):
        load(streamed.source.name, resident_layers=0)


def test_a_weight_of_another_shape_is_named(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    config.write_text(config.read_text().replace('"intermediate_size": 64', '"intermediate_size": 60'))
    with pytest.raises(CheckpointError, match=r"layers\.0\.mlp\.\w+\.weight of shape \(\d+, \d+\).*correct config"):
        load(tmp_path, resident_layers=2)


def test_an_error_in_a_layer_leaves_the_others_to_run(
    streamed: Stack, whole: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("disturbed")

    hook = streamed.block(3).mlp.register_forward_hook(fail)
    with torch.no_grad(), pytest.raises(RuntimeError, match="disturbed"):
        streamed.model(input_ids=IDS)
    hook.remove()
    read, faults = files.SafetensorsWeight.read, ["layers.2.", "layers.4.", "layers.5."]

    def read_or_fail(weight: files.SafetensorsWeight, *task: Any) -> Tensor:
        if faults and faults[0] in weight.name:
            raise OSError(5, f"no answer from {faults.pop(0)}")
        return read(weight, *task)

    monkeypatch.setattr(files.SafetensorsWeight, "read", read_or_fail)
    for name in ("2", "4"):
        with torch.no_grad(), pytest.raises(OSError, match=f"no answer from layers.{name}."):
            streamed.model(input_ids=IDS)
    assert streamed.resident is not None
    streamed.resident.release_all()
    streamed.resident.read_ahead(5)  # read again when it is needed
    wait(streamed.resident._ahead.values())
    assert not faults
    assert all(map(torch.equal, states(whole), states(streamed)))


DEPTH, RESIDENT, WIDTH = 16, 3, 512
LAYER = 4 * (4 * WIDTH**2 + 3 * WIDTH * 3 * WIDTH + 2 * WIDTH)
"""Bytes of a float32 layer: 13.6 MB."""


def sweep_with(folder: Path, resident: int) -> None:
    stack = load(folder, device="cpu", resident_layers=resident or None)
    for row in sweep(stack, ["1-15", "0-6 8-15"], text(1)):
        print(row.plan, row.nll.hex())
    print(peak_bytes())


@pytest.mark.slow
def test_a_process_holds_no_more_layers_than_said(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=WIDTH,
        intermediate_size=3 * WIDTH,
        num_hidden_layers=DEPTH,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=64,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(tmp_path)
    peaks, rows = [], []
    for resident in (0, RESIDENT):
        ended = apart(sweep_with, tmp_path, resident)
        assert ended.code == 0, ended.err
        *lines, peak = ended.out.splitlines()
        peaks.append(int(peak))
        rows.append(lines)
    assert len(rows[0]) == 3
    assert rows[0] == rows[1]
    # Three layers, the one that is being read, and as much again for what the allocator keeps.
    assert peaks[0] - peaks[1] > (DEPTH - 2 * (RESIDENT + 1)) * LAYER


LAYERS = 6


def check_valid(found: ReadingSchedule, graphs: list[Graph], most: int) -> None:
    resident: list[int] = []
    done: list[list[int]] = [[] for _ in graphs]
    for reading in found.readings:
        if reading.released is not None:
            resident.remove(reading.released)
        resident.append(reading.layer)
        assert len(resident) == len(set(resident)) <= max(1, most - 1)
        for graph, nodes, before in zip(graphs, reading.nodes, done, strict=True):
            for index in nodes:
                node = graph.nodes[index]
                assert set(inputs(node)) <= set(before)
                assert not isinstance(node, Apply) or node.layer in resident
                before.append(index)
    assert [sorted(each) for each in done] == [list(range(len(graph.nodes))) for graph in graphs]
    assert found.bound <= len(found.readings)


@given(st.lists(plans(LAYERS), min_size=1, max_size=4), st.lists(plans(LAYERS), max_size=2), st.integers(1, 4))
@settings(max_examples=by_tier(fast=3, nightly=60), deadline=None)
def test_any_plans_are_computed_whole(first: list[Plan], second: list[Plan], most: int) -> None:
    graphs = [build(each) for each in (first, second) if each]
    check_valid(reading_schedule(graphs, most), graphs, most)


@pytest.mark.parametrize("most", first_fast([2, 1, 3]))
@pytest.mark.parametrize("name", ["leave_one_out", "every_window"])
def test_rising_plans_read_each_layer_once(name: str, most: int) -> None:
    members = families.family(name, 30)
    found = reading_schedule([build([Plan.identity(30), *(member.plan for member in members)])], most)
    assert [reading.layer for reading in found.readings] == list(range(30))
    assert found.bound == 30


def test_readings_are_few_and_their_bound_is_that_of_the_best_replacement() -> None:
    graphs = [build(map(Plan.parse, plans)) for plans in (["0-3"], ["1-3"], ["1-3", "1 2"], ["1-3", "1 3"])]
    assert [reading.layer for reading in reading_schedule(graphs, 2).readings] == [0, 1, 2, 3]

    found = reading_schedule([build(member.plan for member in families.swap_adjacent(30))], 3)
    assert [reading.layer for reading in found.readings] == list(range(30))

    plan = Plan.parse("[0-3]*3")
    assert reading_schedule([build([plan])], 2).bound == 9  # 0 1 2 3, then 1 2, then 0 1 3: each time one was kept
    assert reading_schedule([build([plan])], 4).bound == 4

    found = reading_schedule([build([Plan.identity(8), *(each.plan for each in families.leave_one_out(8))])], 3)
    assert found.live[0] in (8, 9)  # one plan per omitted layer, and the original model
