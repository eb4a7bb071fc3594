"""Training arguments, precision and published settings."""

import math
import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from layerwise.data.suites.classification import ClassificationTask, LabeledText
from layerwise.errors import TrainError
from layerwise.runner.training_options import resolve_precision
from layerwise.train import precision
from layerwise.train.arguments import PREFETCHED, WORKERS, check_arguments, loader_arguments
from layerwise.train.checkpoint_dir import existing_run, write_config
from layerwise.train.fine_tuning import FineTuningConfig, _arguments, settings_for
from layerwise.train.pretrain.recipe import pretraining_recipe
from layerwise.train.recipe import Recipe, Settings


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"foo": 1}, "unknown training argument 'foo'"),
        ({"weight_deca": 1}, "did you mean weight_decay"),
        ({"learning_rate": "abc"}, "must be a number"),
        ({"learning_rate": float("nan")}, "must be a number"),
        ({"seed": 1.5}, "must be a whole number"),
        ({"seed": 10**30}, "must be a whole number"),
        ({"bf16": "maybe"}, "must be true or false"),
        ({"optim": "sgdd"}, "transformers rejects the training arguments"),
        ({"output_dir": "x"}, "cannot be changed with --set"),
        ({"report_to": ["wandbb", "tensorboard"]}, "unknown tracker 'wandbb'; did you mean "),
    ],
)
def test_invalid_arguments_are_rejected(given: dict[str, Any], part: str) -> None:
    with pytest.raises(TrainError) as refusal:
        check_arguments({"use_cpu": True, **given})
    assert part in str(refusal.value)
    assert len(str(refusal.value)) < 500


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16), raising=False)
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: "fork")


@pytest.mark.usefixtures("cores")
def test_accelerators_load_data_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = {"dataloader_num_workers": WORKERS, "dataloader_prefetch_factor": PREFETCHED}
    assert loader_arguments("cuda") == {"dataloader_pin_memory": True, **ahead}
    assert loader_arguments("mps") == {"dataloader_pin_memory": False, **ahead}
    assert loader_arguments("cpu") == {"dataloader_pin_memory": False}
    assert loader_arguments("cuda", processes=4)["dataloader_num_workers"] == 3
    assert loader_arguments("cuda", processes=16)["dataloader_num_workers"] == 1
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: "spawn")
    assert loader_arguments("mps") == {"dataloader_pin_memory": False}
    assert loader_arguments("cuda", workers=0) == {"dataloader_pin_memory": True}
    assert loader_arguments("cpu", workers=2)["dataloader_num_workers"] == 2


def test_a_missing_tracker_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("layerwise.train.arguments.get_available_reporting_integrations", lambda: ["tensorboard"])
    with pytest.raises(TrainError, match=r"comet_ml is not installed.* pip install comet-ml"):
        check_arguments({"report_to": "comet_ml"})
    check_arguments({"report_to": "none"})


@pytest.fixture
def with_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    choose: Any = lambda device: "float32" if device == "cpu" else "bfloat16"  # noqa: E731
    monkeypatch.setattr("layerwise.runner.training_options.default_precision", choose)


def begun(run: Path, content: dict[str, object]) -> Path:
    folder = run / "variant" / "seed-0"
    write_config(folder, {"recipe": content, "seed": 0})
    return folder


@pytest.mark.usefixtures("with_bfloat16")
def test_bfloat16_is_the_default_of_accelerators() -> None:
    assert resolve_precision(None, {}, device="auto", run=None) == "bfloat16"
    assert resolve_precision(None, {}, device="cpu", run=None) == "float32"
    assert resolve_precision("float16", {}, device="auto", run=None) == "float16"
    assert resolve_precision(None, {"bf16": True}, device="auto", run=None) == "float32"


@pytest.mark.usefixtures("with_bfloat16")
@pytest.mark.parametrize("taken", ["float32", "bfloat16"])
def test_a_resumed_run_keeps_its_precision(tmp_path: Path, taken: precision.Precision) -> None:
    recipe = pretraining_recipe("tiny", precision=taken)
    folder = begun(tmp_path / "elc", recipe.to_json())
    resumed = resolve_precision(None, {}, device="auto", run=tmp_path / "elc")
    assert resumed == taken
    again = {"recipe": replace(recipe, precision=resumed).to_json(), "seed": 0}
    assert existing_run(folder, again) is None
    begun(tmp_path / "growth", Recipe("variant", Settings(precision=taken)).to_json())
    assert resolve_precision(None, {}, device="auto", run=tmp_path / "growth") == taken
    assert resolve_precision(None, {}, device="auto", run=tmp_path / "nothing yet") == "bfloat16"


def task(name: str) -> ClassificationTask:
    sets = [(LabeledText(f"{split} a", None, 0), LabeledText(f"{split} b", None, 1)) for split in range(3)]
    return ClassificationTask("glue", name, ("no", "yes"), "accuracy", *sets)


@pytest.mark.parametrize(
    ("name", "rate", "batch", "epochs", "patience", "eval_steps"),
    [
        ("rte", 5e-5, 64, 10, 10, None),
        ("multirc", 5e-5, 64, 10, 10, None),
        ("sst2", 5e-5, 64, 10, 100, 200),
        ("mnli-mm", 5e-5, 64, 10, 100, 500),
        ("control control_raising", 5e-5, 32, 10, 10, None),
        ("control lexical_content_the", 1.5e-5, 32, 3, 3, None),
        ("control main_verb", 5e-6, 32, 10, 10, None),
        ("ambiguous syntactic_category_relative_position", 1e-5, 32, 10, 10, None),
        ("ambiguous main_verb_lexical_content_the", 8e-6, 32, 5, 5, None),
        ("ambiguous main_verb_relative_token_position", 5e-5, 32, 10, 10, None),
        ("ambiguous syntactic_category_lexical_content_the", 5e-5, 32, 10, 10, None),
        ("ambiguous control_raising_lexical_content_the", 5e-7, 32, 10, 10, None),
    ],
)
def test_elc_bert_settings_match_its_model_card(
    name: str, rate: float, batch: int, epochs: int, patience: int, eval_steps: int | None
) -> None:
    found = settings_for(task(name), FineTuningConfig(published="elc-bert"))
    assert (*found.learning_rates, found.batch_size, found.epochs) == (rate, batch, epochs)
    assert (found.patience, found.eval_steps, found.schedule) == (patience, eval_steps, "cosine")
    assert (found.warmup, found.weight_decay) == (0.1, 0.1)


def test_given_settings_override_published_ones() -> None:
    given = FineTuningConfig(published="elc-bert", batch_size=8, training_limit=5)
    found = settings_for(task("sst2"), given)
    assert (found.batch_size, found.training_limit, found.epochs) == (8, 5, 10)
    assert settings_for(task("sst2"), FineTuningConfig()) == FineTuningConfig()
    arguments = _arguments("folder", found, 5e-5, 0, "cpu", "accuracy", 80)
    assert (arguments.lr_scheduler_type, arguments.warmup_steps) == ("cosine", math.ceil(0.1 * 10 * 10))
    assert (arguments.eval_strategy, arguments.eval_steps, arguments.save_steps) == ("steps", 200, 200)
