"""Tensors are created on a named device, for users may set a default device; modules follow it, as torch's own do."""

import ast
from collections.abc import Iterable

import pytest
from torch.utils._device import _device_constructors

from package_sources import PACKAGE, files, nodes

CREATE = {f"torch.{each.__name__}" for each in _device_constructors()}  # type: ignore[no-untyped-call]


def unplaced(nodes: Iterable[ast.AST]) -> list[int]:
    """The lines that create a tensor without a device, outside of the constructors of modules."""
    found, in_modules = [], set()
    for node in nodes:
        if isinstance(node, ast.ClassDef) and any("Module" in ast.unparse(base) for base in node.bases):
            made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            in_modules |= {id(call) for each in made for call in ast.walk(each)}
        if isinstance(node, ast.Call) and not any(each.arg == "device" for each in node.keywords):
            found += [node] if ast.unparse(node.func) in CREATE else []
    return [call.lineno for call in found if id(call) not in in_modules]


def test_tensors_are_created_on_a_named_device() -> None:
    found = {str(path.relative_to(PACKAGE)): unplaced(nodes(path)) for path in files()}
    assert {path: lines for path, lines in found.items() if lines} == {}


@pytest.mark.parametrize("line", ["torch.arange(3)", "torch.tensor([1.0])", "torch.randn(2, generator=draw)"])
def test_the_law_sees_what_it_should(line: str) -> None:
    module = f"class M(nn.Module):\n    def __init__(self): {line}\n    def forward(self): "
    assert unplaced(ast.walk(ast.parse(module + line))) == [3]
    assert unplaced(ast.walk(ast.parse(module + f"{line[:-1]}, device=own.device)"))) == []
