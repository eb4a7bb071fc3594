"""A diagnosis: parts, reasons of missing parts, resuming, and seeds."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import nn

import layerwise
from conftest import tiny_llama
from layerwise.errors import MeasureError, OptionError, RunError
from layerwise.measure.interventions.ablation import ablation_losses
from layerwise.measure.language.evaluation_data import EvalData
from layerwise.measure.recovery.finetuning import RecoveryRecipe
from layerwise.measure.recovery.recovery import DEFAULT_TREATMENTS
from layerwise.results import Run, Score
from layerwise.results.run import MANIFEST
from layerwise.runner.reporter import Silent
from layerwise.runner.tasks import Study
from layerwise.stack import Stack, load
from layerwise.studies.diagnose import parts as module
from layerwise.studies.diagnose.context import TIMES, PartSettings
from layerwise.studies.diagnose.part_names import DEFAULT_PARTS, WITHIN_MINUTES, sort_parts
from layerwise.studies.diagnose.steps import PartTask, describe_run, describe_work, list_smaller_parts
from measure.planted_models import own_text, planted
from studies.test_runner import Recorder

DEPTH = 6
MEASURES = {
    *("proxies", "deltas", "predictability", "ablation", "verdict", "racing", "manipulation"),
    *("recovery", "recovery_run", "agreement", "part", "contrast"),
}


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    recipe = RecoveryRecipe(steps=2, every=1, batch_tokens=64, evaluation_tokens=64)
    little = {"recipe": recipe, "treatments": ("noise_50/layer",)}
    own = module.recovery
    with pytest.MonkeyPatch.context() as patched:
        # Not `partial`: the values that the configuration passes would override it.
        patched.setattr(module, "recovery", lambda *given, **options: own(*given, **options | little))
        patched.setattr(
            module, "perturbation_curves", partial(module.perturbation_curves, sizes=(0.1,), alphas=(0.0, 0.9))
        )
        yield


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(planted(depth=DEPTH))


@pytest.fixture(scope="module")
def reading(stack: Stack) -> EvalData:
    return own_text(stack, windows=16, length=10)


def settle(stack: Stack, text: EvalData, parts: Sequence[str] = DEFAULT_PARTS, **options: Any) -> PartSettings:
    defaults = {"curve_tokens": 1_000, "recovery_steps": 16, "recovery_layers": None, "treatments": DEFAULT_TREATMENTS}
    given = {"seed": 0, "min_effect": 0.01, **defaults, **options}
    return PartSettings(stack=stack, text=text, parts=parts, **given)


def carried_out(
    folder: Path, settings: PartSettings, reporter: Silent | None = None
) -> tuple[list[Score], dict[str, list[str]]]:
    manifest = describe_run(settings, None, all_layers=False, recovery_layers=())
    with Run.resume_or_create(folder, manifest) as run:
        for task in (PartTask(part, settings) for part in settings.parts):
            task.execute(Study(folder, reporter or Silent(), run))
        notes: dict[str, list[str]] = {}
        for note in run.store.notes():
            notes.setdefault(note.measure, []).append(note.text)
        return [score for score in run.store.scores() if score.measure != TIMES], notes


@pytest.fixture(scope="module")
def whole(stack: Stack, reading: EvalData, tmp_path_factory: pytest.TempPathFactory) -> list[Score]:
    return carried_out(tmp_path_factory.mktemp("whole") / "run", settle(stack, reading))[0]


@pytest.mark.slow
def test_every_part_has_rows_with_a_null(whole: list[Score]) -> None:
    assert {score.measure for score in whole} == MEASURES
    with_nulls = {score.measure for score in whole if score.against is not None}
    without = {"verdict", "racing", "recovery_run", "part", "contrast"}
    assert with_nulls >= MEASURES - without
    found = {score.claim for score in whole if score.measure == "contrast"}
    assert found >= {"core", "error_accumulation", "redundant_sets", "scaling"}


BARE = {"predictability", "part"}
"""Measures with rows that are not means over text."""


@pytest.mark.slow
def test_curves_and_sets_of_one_long_document_have_intervals(stack: Stack, tmp_path: Path) -> None:
    reading = own_text(stack, windows=16, length=40, per_document=16)
    parts = ("proxies", "predictability", "ablation", "manipulation", "redundancy")
    scores, _ = carried_out(tmp_path / "run", settle(stack, reading, parts, curve_tokens=64))
    of_text = [row for row in scores if row.measure not in BARE or row.metric.startswith("predicted_weight_loss")]
    assert {row.measure for row in of_text} == {
        "proxies",
        "predictability",
        "ablation",
        "verdict",
        "manipulation",
        "agreement",
        "contrast",
    }
    bare = [
        row for row in of_text if row.low is None and row.metric not in ("null_band", "margin", "layers", "singles")
    ]
    assert bare == []
    curves = [row for row in of_text if row.measure == "manipulation" and row.tokens is not None]
    assert {row.tokens for row in curves} == {64}


@pytest.mark.slow
def test_a_part_that_cannot_be_measured_gives_its_reason(
    stack: Stack, reading: EvalData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(context: object) -> None:
        raise MeasureError("not of this model")

    monkeypatch.setitem(module.MEASURES, "ablation", refuses)
    reporter = Recorder()
    scores, notes = carried_out(tmp_path / "run", settle(stack, reading, ("proxies", "ablation")), reporter)
    assert notes["ablation"] == ["not of this model"]
    assert "ablation: not of this model" in reporter.logs
    assert "proxies" in {score.measure for score in scores}


@pytest.mark.slow
def test_layers_of_different_shapes_have_no_weight_comparisons(tmp_path: Path) -> None:
    model = tiny_llama(depth=DEPTH)
    wide = nn.Linear(32, 96, bias=False)
    layer = model.model.layers[2].mlp
    layer.gate_proj, layer.up_proj, layer.down_proj = wide, nn.Linear(32, 96, bias=False), nn.Linear(96, 32, bias=False)
    stack = load(model)
    settings = settle(stack, own_text(stack, windows=16, length=12), ("deltas", "ablation"))
    scores, notes = carried_out(tmp_path / "run", settings)
    deltas = {score.part for score in scores if score.measure == "deltas"}
    assert "self_attn.q_proj.weight" in deltas
    assert "mlp.up_proj.weight" not in deltas
    averaged = {score.layer for score in scores if score.metric == "neighbor_average"}
    assert averaged.isdisjoint({1, 2, 3})
    assert any("same shapes" in text for text in notes["ablation"])


def test_without_an_ablation_the_screening_decides(stack: Stack, tmp_path: Path) -> None:
    long = own_text(stack, windows=16, length=40)
    scores, _ = carried_out(tmp_path / "run", settle(stack, long, ("racing",)))
    assert {row.tokens for row in scores if row.measure == "verdict" and row.layer is not None} == {long.tokens}
    race = {row.layer: row.metric for row in scores if row.measure == "racing" and row.layer is not None}
    told = {score.layer: score.metric for score in scores if score.measure == "verdict"}
    assert told == race | {None: "margin"}


def test_the_cost_is_counted_before_anything_is_computed(stack: Stack, reading: EvalData) -> None:
    counted = len({row.plan for row in ablation_losses(stack, reading)}) - 1
    cost = describe_work(settle(stack, reading, ("ablation", "recovery")), ())[-1]
    assert f"ablation {counted} on {reading.tokens} tokens; recovery 54 fine-tunings of 16 steps" in cost


def test_finished_parts_are_not_repeated(stack: Stack, reading: EvalData, tmp_path: Path) -> None:
    settings = settle(stack, reading, ("ablation", "deltas"))
    ablation, deltas = (PartTask(part, settings) for part in settings.parts)
    assert deltas.remaining(tmp_path, None) is None, "it compares weights alone"
    assert ablation.remaining(tmp_path, None) is not None
    carried_out(tmp_path / "run", settings)
    with Run.open(tmp_path / "run") as run:
        assert ablation.remaining(tmp_path / "run", run) is None
        recorder = Recorder()
        ablation.execute(Study(tmp_path / "run", recorder, run))
    assert recorder.logs == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": ("ablaton",)}, "unknown part 'ablaton'.*ablation"),
        ({"parts": ()}, "parts must contain at least one of"),
        ({"all_layers": True, "recovery_layers": (1,)}, "all_layers and recovery_layers cannot be combined"),
        ({"minutes": 3.0, "tokens": 9}, "minutes and tokens both set the amount of text"),
        ({"parts": ("deltas",), "curve_tokens": 9}, "curve_tokens requires parts manipulation or"),
        ({"parts": ("deltas",), "recovery_steps": 200}, "options for recovery require parts recovery"),
        ({"recovery_layers": (6,)}, "recovery_layers must be below 6, got 6"),
        ({"metric": len}, "Pass batches too"),
    ],
)
def test_invalid_and_unused_options_are_rejected(stack: Stack, options: dict[str, Any], message: str) -> None:
    with pytest.raises((MeasureError, OptionError), match=message):
        layerwise.diagnose(stack, ["a text"], reporter=Silent(), **options)


def test_a_shallow_model_and_a_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(MeasureError, match=r"at least 4 layers, got 3"):
        layerwise.diagnose(load(tiny_llama(depth=3)), ["a text"], reporter=Silent())
    (tmp_path / MANIFEST).touch()
    with pytest.raises(RunError, match=f"layerwise train schedule {tmp_path} --output FILE"):
        layerwise.diagnose(str(tmp_path), reporter=Silent())


def test_parts_use_all_their_options() -> None:
    def smaller(has_recovery: bool = False, has_curves: bool = False) -> list[tuple[str, ...]]:
        return list(list_smaller_parts(DEFAULT_PARTS, has_recovery=has_recovery, has_curves=has_curves))

    assert smaller() == list(WITHIN_MINUTES)
    assert smaller(has_recovery=True) == []
    assert smaller(has_curves=True) == [WITHIN_MINUTES[0]]
    assert list(list_smaller_parts(("racing",), has_recovery=False, has_curves=False)) == []


def test_settings_but_not_the_order_of_parts_identify_a_run(stack: Stack, reading: EvalData) -> None:
    def families(*, all_layers: bool = False, recovery_layers: Sequence[int] = (), **options: Any) -> tuple[str, ...]:
        settings = settle(stack, reading, **options)
        return describe_run(settings, None, all_layers=all_layers, recovery_layers=recovery_layers).families

    changes: tuple[dict[str, Any], ...] = (
        {"parts": ("deltas",)},
        {"curve_tokens": 9},
        {"min_effect": 0.5},
        {"recovery_steps": 200},
        {"all_layers": True},
        {"recovery_layers": (1, 3)},
    )
    assert len({families(), *(families(**change) for change in changes)}) == 7
    assert sort_parts(("redundancy", "ablation", "proxies")) == ("proxies", "ablation", "redundancy")
