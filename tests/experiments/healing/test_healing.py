"""`layerwise heal` as a user meets it: what it leaves, that it resumes, which models it heals, what it refuses."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForMaskedLM

import layerwise as library
from cli.command import Ended, layerwise, refused
from cli.conftest import save_llama, save_texts
from cli.picture_models import save_vit
from layerwise.experiments.healing.config import Healing
from layerwise.experiments.healing.run import DEFAULT_STEPS, _settings
from layerwise.experiments.reporter import Silent
from layerwise.plan import Plan
from layerwise.stack import load
from train.learners import tiny_bert

SHORT = ("--steps", "2", "--seeds", "2", "--set", "evals=1", "--batch-size", "4", "--max-length", "24")
ONE_RATE = ("--learning-rates", "1e-3")


def heal(model: Path, plan: str, run: Path, *options: str | Path) -> Ended:
    ended = layerwise("heal", model, "--plan", plan, *ONE_RATE, "--run", run, *options)
    assert ended.code == 0, ended.err
    return ended


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("inputs")
    return save_llama(folder / "model"), save_texts(folder / "texts", count=30, characters=60)


@pytest.fixture(scope="module")
def healed(inputs: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ended]:
    model, texts = inputs
    folder = tmp_path_factory.mktemp("runs") / "run"
    ended = heal(model, "0 2-3", folder, "--text", texts, *SHORT, "--compare", "tail-labels", "--windows", "1")
    return folder, ended


@pytest.mark.slow
def test_the_checkpoint_is_the_adapters_on_the_base_under_the_plan(
    inputs: tuple[Path, Path], healed: tuple[Path, Ended]
) -> None:
    folder = healed[0]
    ids = torch.arange(10)[None]
    written = AutoModelForCausalLM.from_pretrained(folder / "model")
    assert written.config.num_hidden_layers == 3
    base = AutoModelForCausalLM.from_pretrained(inputs[0])
    adapted = load(PeftModel.from_pretrained(base, str(folder / "adapter")), layers="base_model.model.model.layers")
    with torch.no_grad():
        expected = adapted.logits(Plan.parse("0 2-3"), input_ids=ids)
        torch.testing.assert_close(written(ids).logits, expected, rtol=1e-4, atol=1e-4)
    assert load(str(folder / "model")).depth == 3


@pytest.mark.slow
def test_rates_are_swept_beyond_an_end_and_the_sweep_says_so(inputs: tuple[Path, Path], tmp_path: Path) -> None:
    result = library.heal(
        inputs[0],
        inputs[1],
        plan="0 2-3",
        method="tail",
        teacher="none",
        learning_rates=(1e-3, 2e-3),
        steps=1,
        seeds=1,
        evals=1,
        batch_size=4,
        max_length=24,
        controls=(),
        run=tmp_path,
        reporter=Silent(),
    )
    tried = {row.amount for row in result.rows if row.metric == "validation_nll"}
    assert {1e-3, 2e-3} < tried
    assert [row.amount for row in result.rows if row.metric.startswith("chosen")]


@pytest.mark.slow
def test_vision_models_are_healed(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit")
    short = ("--steps", "2", "--batch-size", "10", "--seeds", "1", "--set", "hidden=cosine")
    heal(vit, "0 2", tmp_path / "run", "--images", "digits", "--limit", "20", *short)
    assert AutoModelForImageClassification.from_pretrained(tmp_path / "run" / "model").config.num_hidden_layers == 2


@pytest.mark.slow
def test_models_that_fill_in_tokens_are_healed(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(20)]
    bert = tiny_bert(tmp_path / "bert", words)
    texts = tmp_path / "texts"
    texts.mkdir()
    for number in range(120):
        (texts / f"{number}.txt").write_text(" ".join(words[(number * step) % 20] for step in range(1, 15)))
    heal(bert, "0", tmp_path / "run", "--text", texts, *SHORT, "--method", "full")
    assert AutoModelForMaskedLM.from_pretrained(tmp_path / "run" / "model").config.num_hidden_layers == 1
    assert not (tmp_path / "run" / "adapter").exists()


@pytest.mark.slow
def test_groups_are_healed_and_no_checkpoint_is_written(inputs: tuple[Path, Path], tmp_path: Path) -> None:
    ended = heal(inputs[0], "0 (1|2) 3", tmp_path / "run", "--text", inputs[1], *SHORT, "--controls", "")
    assert "no " in ended.err
    assert "a checkpoint runs its layers one after another" in ended.err
    assert not (tmp_path / "run" / "model").exists()
    assert (tmp_path / "run" / "adapter" / "adapter_config.json").is_file()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--plan", "0 99x"), "cannot"),
        (("--plan", "0 Q4_0:1"), "cannot heal a model under a plan with Q4_0:1"),
        (("--plan", "a:0 b:1"), "takes layers of several models"),
        (("--plan", "0-1", "--compare", "lora-label"), "did you mean lora-labels"),
        (("--plan", "0-1", "--controls", "wole"), "did you mean whole"),
        (("--plan", "0-1", "--teacher", "none", "--set", "hidden=mse"), "--set hidden does nothing here"),
        (("--plan", "0-1", "--method", "tail", "--set", "rank=4"), "--set rank does nothing here"),
        (("--plan", "0-1", "--steps", "3", "--epochs", "1"), "give one of them"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_opened(options: tuple[str, ...], words: str) -> None:
    message = refused("heal", "no/model/there", *options)
    assert words in message or "99x" in message


def test_a_plan_of_layers_that_there_are_not_is_refused(inputs: tuple[Path, Path]) -> None:
    assert "layer" in refused("heal", inputs[0], "--plan", "0-9", "--text", inputs[1], "--dry-run")


@pytest.mark.parametrize(
    ("options", "count", "steps"),
    [({}, 320, 20), ({}, 6_400, DEFAULT_STEPS), ({"epochs": 1.0}, 6_400, 400), ({"steps": 7}, 6_400, 7)],
)
def test_a_training_on_a_long_text_has_a_budget_unless_it_is_given(
    options: dict[str, Any], count: int, steps: int
) -> None:
    config = Healing(model="org/name", plan="0-3", text=Path("book.txt"), **options)
    assert _settings(config, count).steps(count) == steps
