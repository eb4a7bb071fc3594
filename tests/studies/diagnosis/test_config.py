"""The configuration of a diagnosis is checked when it is made, and says what its rows mean."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layerwise.errors import LayerwiseError, MeasureError, OptionError
from layerwise.measure.recovery.finetuning import RecoveryRecipe
from layerwise.results.run import MANIFEST
from layerwise.studies.diagnose.options import RECOVERY_STEPS, WITHIN_MINUTES, Diagnosis

PLAIN = Diagnosis(model="demo")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": ("ablaton",)}, "unknown part 'ablaton'.*ablation"),
        ({"parts": ()}, "--parts names nothing"),
        ({"all_layers": True, "recovery_layers": (1,)}, "give one of them"),
        ({"minutes": 3.0, "tokens": 9}, "--minutes and --tokens each say how much text is read; give one of them"),
        ({"parts": ("deltas",), "curve_tokens": 9}, "--set curve_tokens does nothing here"),
        (
            {"parts": ("deltas",), "all_layers": True},
            "--all-layers does nothing here: it is read with --parts recovery",
        ),
        (
            {"parts": ("deltas",), "recovery_steps": 200},
            "--recovery-steps does nothing here: it is read with --parts reco",
        ),
    ],
)
def test_what_cannot_be_measured_or_is_not_read_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises((MeasureError, OptionError), match=message):
        Diagnosis(model="demo", **options)


@pytest.mark.parametrize(
    ("options", "count"), [({}, 5), ({"recovery_steps": 200}, 1), ({"curve_tokens": 9}, 2), ({"parts": ("racing",)}, 1)]
)
def test_a_smaller_question_reads_every_option_that_is_given(options: dict[str, Any], count: int) -> None:
    """`--recovery-steps 200` without parts was refused while the time was chosen: "do nothing here"."""
    config = Diagnosis(model="demo", **options)
    assert [each.parts for each in config.alternatives()] == [config.parts, *WITHIN_MINUTES[1:count]]


def test_a_run_is_no_model(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).touch()
    with pytest.raises(LayerwiseError, match=f"layerwise train schedule {tmp_path} --output FILE"):
        Diagnosis(model=str(tmp_path))


def test_every_setting_is_part_of_what_a_run_is() -> None:
    for changed in (
        replace(PLAIN, parts=("deltas",)),
        replace(PLAIN, curve_tokens=9),
        replace(PLAIN, min_effect=0.5),
        replace(PLAIN, all_layers=True),
        replace(PLAIN, recovery_steps=200),
        replace(PLAIN, recovery_layers=(1, 3)),
    ):
        assert changed.settings() != PLAIN.settings()


def test_the_order_of_the_parts_is_no_setting() -> None:
    named = replace(PLAIN, parts=("redundancy", "ablation", "proxies"))
    assert named.ordered_parts() == ("proxies", "ablation", "redundancy")
    assert named.settings() == replace(PLAIN, parts=("ablation", "proxies", "redundancy")).settings()


def test_recovery_is_as_its_recipe_says_unless_options_say_otherwise() -> None:
    assert RecoveryRecipe().steps == RECOVERY_STEPS
