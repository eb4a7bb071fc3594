"""Measurements widen tensors in one module and make float64 tensors on the CPU: MPS and some XPU devices lack float64.

`tests/accelerator` runs the verbs on a device whose tensors cannot be mixed with those of the CPU.
"""

import ast

import pytest
import torch

from layerwise.measure.stats import float64
from layerwise.measure.stats.float64 import to_float64, to_float64_cpu, widen
from package_sources import PACKAGE, files, nodes

HOME = PACKAGE / "measure"
WIDENING = HOME / "stats" / "float64.py"


def make_float64(node: ast.AST) -> bool:
    """Return whether a call makes a float64 tensor on a device that may lack it."""
    if not isinstance(node, ast.Call):
        return False
    given = {ast.unparse(value) for value in (*node.args, *(keyword.value for keyword in node.keywords))}
    is_widened = isinstance(node.func, ast.Attribute) and node.func.attr == "double"
    return is_widened or ("torch.float64" in given and "'cpu'" not in given)


def test_measurements_make_float64_tensors_on_the_cpu_alone() -> None:
    """No other module of the measurements widens a tensor."""
    found = {path for path in files() if path.is_relative_to(HOME) and any(map(make_float64, nodes(path)))}
    assert found == {WIDENING}


@pytest.mark.parametrize(
    ("call", "is_made"),
    [
        ("x.double()", True),
        ("x.to(torch.float64)", True),
        ("torch.zeros(2, dtype=torch.float64, device=x.device)", True),
        ("torch.zeros(2, dtype=torch.float64, device='cpu')", False),
        ("x.to('cpu', torch.float64)", False),
        ("torch.zeros(2, device=x.device)", False),
    ],
)
def test_a_float64_tensor_elsewhere_would_be_seen(call: str, is_made: bool) -> None:
    assert make_float64(ast.parse(call, mode="eval").body) is is_made


def test_tensors_are_widened_as_far_as_their_device_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without float64, `widen` stays at float32, and `to_float64` moves to the CPU first."""
    values = torch.tensor([1.0, 1e-9])
    assert to_float64(values).dtype == to_float64_cpu(values).dtype == widen(values).dtype == torch.float64
    monkeypatch.setattr(float64, "widest_dtype", lambda device: torch.float32)
    there = values.to("meta")
    assert widen(there).dtype == torch.float32
    moved: list[torch.Tensor] = []
    monkeypatch.setattr(torch.Tensor, "cpu", lambda each: moved.append(each) or values)
    assert torch.equal(to_float64(there), values.double())
    assert moved
