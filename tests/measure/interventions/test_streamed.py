from collections import Counter
from pathlib import Path

import pytest

from conftest import tiny_llama
from layerwise.errors import MeasureError
from layerwise.measure.interventions.intervention import Intervention, intervention_losses
from layerwise.measure.interventions.sweep import CostEstimate, CostMeter, add_identity, estimate_streaming, sweep
from layerwise.measure.weights.deltas import deltas
from layerwise.plan import Plan, families
from layerwise.results.rows import Loss
from layerwise.stack import Stack, load
from measure.interventions.test_sweep_pieces import text

DEPTH = 12


@pytest.fixture(scope="module")
def stacks(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stack, Stack]:
    folder: Path = tmp_path_factory.mktemp("deep")
    tiny_llama(DEPTH).save_pretrained(folder)
    return load(folder), load(folder, resident_layers=3)


def in_order(rows: list[Loss]) -> list[Loss]:
    return sorted(rows, key=lambda row: (row.plan, row.document, row.window))


def readings(stack: Stack) -> Counter[int]:
    stack.resident.count()
    files, counted = stack.resident._files, Counter[int]()
    plain = type(files).read

    def counting(layer: int, *arguments: object) -> object:
        counted[layer] += 1
        return plain(files, layer, *arguments)  # type: ignore[arg-type]

    vars(files)["read"] = counting
    return counted


def test_leave_one_out_loads_each_layer_once_per_batch(stacks: tuple[Stack, Stack]) -> None:
    whole, streamed = stacks
    data, members = text(3), families.leave_one_out(DEPTH)
    estimate = estimate_streaming(streamed, streamed.resident, add_identity(streamed, members), data)
    assert estimate.readings == estimate.bound == DEPTH * len(estimate.rounds)
    assert [number for each in estimate.rounds for number in each] == list(range(len(data.batches)))
    counted = readings(streamed)
    meters: list[tuple[CostMeter, CostEstimate]] = []
    rows = sweep(streamed, members, data, progress=lambda *seen: meters.append(seen))
    assert in_order(rows) == in_order(sweep(whole, members, data))
    assert counted == dict.fromkeys(range(DEPTH), len(estimate.rounds))
    assert streamed.resident.cost.most_layers <= 3
    assert streamed.resident.cost.most_bytes <= estimate.resident_bytes
    assert rows[0].plan == str(Plan.identity(DEPTH))
    meter, due = meters[-1]
    assert (meter.layer_tokens, meter.head_tokens) == (due.layer_tokens, due.head_tokens)
    assert meter.most_live <= (DEPTH + 1) * max(map(len, estimate.rounds))


def test_reordered_and_repeated_layers_match_a_resident_model(stacks: tuple[Stack, Stack]) -> None:
    whole, streamed = stacks
    plans = ["11-0", "0-4 (5|6|7)*2 8-11", "0-5 [6-8]*3 9-11", "0-3 4.mlp 5-11", "2 1", "2"]
    assert in_order(sweep(streamed, plans, text(1))) == in_order(sweep(whole, plans, text(1)))


def test_sweep_resumes_with_missing_rows(stacks: tuple[Stack, Stack]) -> None:
    _, streamed = stacks
    data, plans = text(4), ["0-11", "0-10", "1-11"]
    rows = sweep(streamed, plans, data)
    done = [row for row in rows if row.document != "3" or row.plan == "0-10"]

    def finished(task: str, document: str, window: int) -> frozenset[str]:
        return frozenset(row.plan for row in done if (row.task, row.document, row.window) == (task, document, window))

    again = sweep(streamed, plans, data, finished=finished)
    assert in_order([*done, *again]) == in_order(rows)
    assert not sweep(streamed, plans, data, finished=lambda *cell: frozenset(plans))


def test_interventions_share_loaded_layers(stacks: tuple[Stack, Stack]) -> None:
    whole, streamed = stacks
    data = text(2, tokens=24)
    skips = [Intervention(layer, "skip", lambda context: lambda one: one.state) for layer in range(DEPTH)]
    readings(streamed)
    assert intervention_losses(streamed, skips, data) == intervention_losses(whole, skips, data)
    state = data.batches[0].size * 32 * 4
    rounds = -(-DEPTH // (streamed.resident.most * max(streamed.resident.sizes) // state))
    assert streamed.resident.cost.readings == DEPTH * rounds


@pytest.mark.slow
def test_weight_comparison_loads_no_layers(stacks: tuple[Stack, Stack]) -> None:
    whole, streamed = stacks
    counted = readings(streamed)
    rows = deltas(streamed, seed=0)
    assert rows == [row for row in deltas(whole, seed=0) if row.against != "random_init"]
    assert not counted


def test_non_finite_losses_are_rejected(tmp_path: Path) -> None:
    model = tiny_llama(4)
    model.model.layers[2].mlp.up_proj.weight.data[0, 0] = float("nan")
    model.save_pretrained(tmp_path)
    with pytest.raises(MeasureError, match="must be finite"):
        sweep(load(tmp_path, resident_layers=2, device="cpu"), ["0 1 3"], text(2))
