"""The examples in the docstrings of the report room are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import layerwise.report

MODULES = [found.name for found in pkgutil.walk_packages(layerwise.report.__path__, prefix="layerwise.report.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
