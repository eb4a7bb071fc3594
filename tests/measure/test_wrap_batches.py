from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import layerwise
from layerwise.errors import DataError, MeasureError, OptionError
from layerwise.measure.language.evaluation_data import wrap_batches
from layerwise.runner.reporter import Silent
from layerwise.stack import Stack

DEPTH = 5


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.tanh(self.linear(x))


class Net(nn.Module):
    """Reads vectors, has no configuration, and its states have no tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def distance(outputs: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
    return (outputs - batch["wanted"]).square().mean(-1)


@pytest.fixture(scope="module")
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture(scope="module")
def batches(net: Net) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    x, wanted = (torch.randn(30, width, generator=generator) for width in (8, 3))
    labels = torch.randint(0, 3, (30,), generator=generator)
    return [{"x": x[at], "wanted": wanted[at], "labels": labels[at]} for at in (slice(0, 20), slice(20, 30))]


def alone(net: Net, batches: list[dict[str, Tensor]], skipped: int | None, metric: Any) -> float:
    """Compute the mean metric without a layer in plain torch."""
    values = []
    with torch.inference_mode():
        for batch in batches:
            x = batch["x"]
            for number, block in enumerate(net.blocks):
                x = x if number == skipped else block(x)
            outputs = net.head(x)
            loss = nn.functional.cross_entropy(outputs, batch["labels"], reduction="none")
            values.append(loss if metric is None else metric(outputs, batch))
    return float(torch.cat(values).double().mean())


@pytest.mark.parametrize("metric", [None, distance])
def test_sweep_and_diagnosis_of_batches_match_plain_torch(
    net: Net, batches: list[dict[str, Tensor]], tmp_path: Path, metric: Any
) -> None:
    stack = layerwise.load(net)
    options: dict[str, Any] = {"batches": batches, "metric": metric, "reporter": Silent()}
    swept = layerwise.sweep(stack, families=("leave_one_out",), run=tmp_path / "sweep", **options)
    diagnosed = layerwise.diagnose(stack, parts=("racing",), run=tmp_path / "diagnosis", **options)
    effects = swept.table().set_index("layer")
    verdicts = {row.layer: row.value for row in diagnosed.rows if row.measure == "verdict" and row.layer is not None}
    whole = alone(net, batches, None, metric)
    for layer in range(DEPTH):
        effect = alone(net, batches, layer, metric) - whole
        assert effects.value[layer] == pytest.approx(effect, abs=1e-5)
        assert effects.low[layer] < effect < effects.high[layer]
        assert verdicts[layer] == pytest.approx(effect, abs=1e-5)
    page = swept.report(tmp_path / "page.html").read_text()
    assert ("own batches (by distance, not nats)" in page) == (metric is not None)


def test_invalid_batches_are_rejected_with_a_fix(net: Net, batches: list[dict[str, Tensor]], tmp_path: Path) -> None:
    stack: Stack = layerwise.load(net)
    for given, message in (
        ([], "at least one batch, got none"),
        ([(torch.zeros(2, 8),)], "dictionary of tensors, got tuple"),
        ([{"x": torch.zeros(2, 8), "labels": torch.zeros(3)}], r"the same number of rows, got \[2, 3\]"),
        ([{"x": torch.zeros(2, 8)}], r"labels of shape \(rows,\). Add them or pass a metric"),
        ([{"y": torch.zeros(2, 8), "labels": torch.zeros(2)}], r"an input of the model \(x\), got only y, labels"),
    ):
        with pytest.raises(DataError, match=message):
            wrap_batches(stack, given)  # type: ignore[arg-type]
    call = {"batches": batches, "reporter": Silent(), "run": tmp_path / "run"}
    with pytest.raises(MeasureError, match=r"one number per row, shape \(20,\), got \(20, 3\)"):
        layerwise.sweep(stack, metric=lambda outputs, batch: outputs, families=("leave_one_out",), **call)
    with pytest.raises(MeasureError, match=r"parts must be among deltas, .* got proxies"):
        layerwise.diagnose(stack, parts=("proxies",), **call)
    with pytest.raises(OptionError, match="text and batches both set"):
        layerwise.sweep(stack, ["a text"], **call)
    with pytest.raises(OptionError, match="Pass batches too"):
        layerwise.sweep(stack, metric=distance, reporter=Silent())
