"""The configuration of a diagnosis is checked when it is made, and says what its rows mean."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layerwise.errors import LayerwiseError, MeasureError, OptionError
from layerwise.experiments.diagnosis.config import Diagnosis
from layerwise.results.run import MANIFEST

PLAIN = Diagnosis(model="demo")


@pytest.mark.parametrize(("options", "message"), [
    ({"parts": ("ablaton",)}, "unknown part 'ablaton'.*ablation"),
    ({"parts": ("pruning", "proxies")}, "add ablation to --parts"),
    ({"parts": ("pruning",)}, "add proxies and ablation to --parts"),
    ({"parts": ()}, "--parts names nothing"),
    ({"min_effect": 0.0}, "use a positive one"),
])  # fmt: skip
def test_what_cannot_be_measured_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MeasureError, match=message):
        Diagnosis(model="demo", **options)


@pytest.mark.parametrize(("options", "message"), [
    ({"parts": ("deltas",), "budget": 9}, "--budget does nothing here: ablation, racing, agreement and pruning read"),
    ({"parts": ("deltas",), "curve_tokens": 9}, "--curve-tokens does nothing here"),
    ({"parts": ("deltas",), "all_layers": True}, "--all-layers does nothing here: recovery reads it"),
    ({"curve_tokens": 0}, "--curve-tokens takes a number from 1"),
    ({"seed": -1}, "--seed takes a number from 0"),
])  # fmt: skip
def test_options_that_nothing_reads_and_values_out_of_bounds_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        Diagnosis(model="demo", **options)


def test_a_run_is_no_model(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).touch()
    with pytest.raises(LayerwiseError, match=f"layerwise schedule {tmp_path} --output FILE"):
        Diagnosis(model=str(tmp_path))


def test_every_setting_is_part_of_what_a_run_is() -> None:
    for changed in (
        replace(PLAIN, parts=("deltas",)), replace(PLAIN, curve_tokens=9), replace(PLAIN, budget=9),
        replace(PLAIN, min_effect=0.5), replace(PLAIN, all_layers=True),
    ):  # fmt: skip
        assert changed.settings() != PLAIN.settings()


def test_the_order_of_the_parts_is_no_setting() -> None:
    named = replace(PLAIN, parts=("pruning", "ablation", "proxies"))
    assert named.ordered_parts() == ("proxies", "ablation", "pruning")
    assert named.settings() == replace(PLAIN, parts=("ablation", "proxies", "pruning")).settings()
