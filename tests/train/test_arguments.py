"""Further training arguments: what transformers has and takes, or a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from layerwise.errors import TrainError
from layerwise.train.arguments import check_arguments


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"use_cpu": True},
        {"use_cpu": True, "report_to": "none", "dataloader_num_workers": 2, "learning_rate": 1, "weight_decay": 0.1},
        {"use_cpu": True, "optim": "adafactor", "lr_scheduler_kwargs": {"num_cycles": 2}, "fsdp": ""},
    ],
)
def test_what_transformers_takes_passes(given: dict[str, Any]) -> None:
    check_arguments(given)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"foo": 1}, "no training argument 'foo'"),
        ({"weight_deca": 1}, "did you mean weight_decay"),
        ({"learning_rate": "abc"}, "where a number belongs"),
        ({"learning_rate": float("nan")}, "where a number belongs"),
        ({"seed": 1.5}, "where a whole number belongs"),
        ({"seed": 10**30}, "where a whole number belongs"),
        ({"bf16": "maybe"}, "where true or false belongs"),
        ({"optim": "sgdd"}, "transformers refuses"),
        ({"output_dir": "x"}, "name the folder of the run with --run"),
    ],
)
def test_what_it_does_not_take_is_a_sentence(given: dict[str, Any], part: str) -> None:
    with pytest.raises(TrainError) as refusal:
        check_arguments({"use_cpu": True, **given})
    assert part in str(refusal.value)
    assert len(str(refusal.value)) < 500
