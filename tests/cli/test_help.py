"""The face of the command: its verbs, its flags, its help, and what it costs to ask."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import pytest
import typer

from cli.command import layerwise, refused
from layerwise.cli import convert, knobs, options, refine, train
from layerwise.cli.app import app
from layerwise.data.augmentation import AUGMENTATIONS
from layerwise.measure import study
from layerwise.measure.reading import WINDOW
from layerwise.models import VARIANTS
from layerwise.plan import FAMILIES
from layerwise.stack.load import DEVICES, DTYPES
from layerwise.train.recipe import METHODS

MODEL_FLAGS = {"--layers", "--device", "--dtype", "--revision", "--trust-remote-code"}
HELD_OUT = {"--validation", "--test"}
FLAGS = {
    "sweep": MODEL_FLAGS
    | {"--text", "--tokens", "--length", "--batch-tokens", "--families", "--plan", "--tasks", "--task-folder"}
    | {"--task-limit", "--run", "--fresh", "--no-similarity", "--seed", "--quiet", "--tokenizer"},
    "diagnose": MODEL_FLAGS
    | {"--text", "--tokens", "--length", "--batch-tokens", "--parts", "--budget", "--margin", "--curve-tokens"}
    | {"--thorough", "--emit-schedule", "--spend", "--levels", "--run", "--fresh", "--seed", "--quiet", "--tokenizer"},
    "merge": {"--draws", "--save", "--plan", "--arm", "--images", "--text", "--unreadable", "--limit", "--length"}
    | HELD_OUT
    | {"--run", "--fresh", "--seed", "--quiet", "--device", "--dtype"},
    "plan": {"--depth"},
    "save": MODEL_FLAGS | {"--plan", "--to", "--fresh", "--quiet", "--tokenizer"},
    "verify": MODEL_FLAGS | {"--plan"},
    "train METHODS": MODEL_FLAGS - {"--dtype", "--trust-remote-code"}
    | HELD_OUT
    | {"--model", "--images", "--text", "--unreadable", "--limit", "--length", "--seeds", "--epochs", "--batch"}
    | {"--accumulation", "--learning-rate", "--schedule", "--augmentation", "--precision", "--checks", "--set"}
    | {"--drop", "--reach", "--skipping", "--position-table", "--prediction-loss", "--prediction-reads", "--alone"}
    | {"--new-head", "--run", "--fresh", "--seed", "--quiet", "--tokenizer"},
    "train elc": {
        "--vocabulary",
        "--text",
        "--size",
        "--variants",
        "--initialisation",
        "--seeds",
        "--steps",
        "--epochs",
        "--seconds",
    }
    | HELD_OUT
    | {"--batch", "--accumulation", "--learning-rate", "--precision", "--checks", "--compile", "--set", "--run"}
    | {"--fresh", "--seed", "--quiet", "--tokenizer", "--device"},
    "train growth": MODEL_FLAGS - {"--dtype", "--trust-remote-code"}
    | HELD_OUT
    | {"--model", "--text", "--schedule", "--importance", "--equal", "--explain", "--alone", "--seeds", "--steps"}
    | {"--epochs", "--passes", "--batch", "--accumulation", "--learning-rate", "--precision", "--checks", "--set"}
    | {"--from-scratch", "--length", "--run", "--fresh", "--seed", "--quiet", "--tokenizer"},
    "robustness": MODEL_FLAGS - {"--trust-remote-code"}
    | HELD_OUT
    | {"--images", "--text", "--unreadable", "--limit", "--length", "--orders", "--draws", "--seeds"}
    | {"--run", "--fresh", "--seed", "--quiet", "--tokenizer"},
    "evaluate": MODEL_FLAGS - {"--layers"}
    | {"--suite", "--data", "--password", "--temperature", "--too-long", "--limit", "--tasks", "--seeds"}
    | {"--run", "--fresh", "--seed", "--quiet", "--tokenizer"},
    "study layer-weights": {
        "--text",
        "--size",
        "--seeds",
        "--steps",
        "--batch",
        "--accumulation",
        "--learning-rate",
        "--precision",
    }
    | HELD_OUT
    | {"--set", "--run", "--fresh", "--seed", "--quiet", "--tokenizer", "--device"},
    "study growth": MODEL_FLAGS - {"--dtype", "--trust-remote-code"}
    | HELD_OUT
    | {"--model", "--text", "--arms", "--rates", "--pilots", "--seeds", "--steps", "--epochs", "--passes", "--batch"}
    | {"--accumulation", "--precision", "--checks", "--set", "--from-scratch", "--length", "--run", "--fresh"}
    | {"--seed", "--quiet", "--tokenizer"},
    "convert": {"--variant", "--tokenizer", "--out", "--heads"},
    "wiring": {"--keep", "--tolerance", "--rounds", "--save", "--images", "--text", "--unreadable", "--limit"}
    | HELD_OUT
    | {"--length", "--run", "--fresh", "--seed", "--quiet", "--device", "--dtype"},
    "report": {"--to", "--markdown"},
    "claims": {"--to"},
    "export": {"--to", "--format"},
}


def test_verbs_and_flags_are_these() -> None:
    """A flag that disappears breaks someone's script: change this list on purpose or not at all."""
    found = {
        name: {flag for parameter in command.params for flag in parameter.opts if flag.startswith("--")}
        for name, command in commands(typer.main.get_command(app))
    }
    assert found == FLAGS


def commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Every command by the words that call it, those of groups among them."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", command


@pytest.mark.parametrize("verb", FLAGS)
def test_every_help_has_an_example_and_fits_eighty_columns(verb: str) -> None:
    ended = layerwise(*verb.split(), "--help")
    assert ended.code == 0
    assert (
        f" layerwise {verb.removesuffix(train.METHODS).strip()} " in ended.out.partition("Usage")[2].partition("\n")[2]
    )
    assert max(map(len, ended.out.splitlines())) <= 80
    assert all(flag in ended.out for flag in FLAGS[verb])
    assert "…" not in ended.out


def test_no_verb_gets_the_help() -> None:
    ended = layerwise()
    assert all(f" {verb.split()[0]} " in ended.out + ended.err for verb in FLAGS)
    assert "layerwise sweep demo" in ended.out + ended.err
    assert layerwise("-h").code == 0


def test_the_version_is_that_of_the_package() -> None:
    ended = layerwise("--version")
    assert (ended.code, ended.out, ended.err) == (0, f"layerwise {metadata.version('layerwise')}\n", "")


def test_choices_in_the_help_are_those_of_the_code() -> None:
    assert (options.DEVICES, options.DTYPES) == (DEVICES, DTYPES)
    assert knobs.AUGMENTATIONS == AUGMENTATIONS
    assert set(convert.PUBLISHED) == set(VARIANTS) - {"denseformer"}
    assert all(name in layerwise("train", "METHODS", "--help").out for name in METHODS)
    assert {*refine.APART, train.METHODS} == set(typer.main.get_command(train.train).commands)  # type: ignore[attr-defined]
    shown = layerwise("sweep", "--help").out
    assert all(name in shown for name in FAMILIES)
    assert f"by default {WINDOW} tokens" in shown
    assert f"[default: {study.BATCH_TOKENS}]" in shown
    assert f"[default: {','.join(study.DEFAULT_FAMILIES)}]" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["swep"], "No such command 'swep'. Did you mean 'sweep'?"),
        (["sweep"], "Missing argument 'MODEL'"),
        (["plan"], "Missing argument 'PLAN"),
        (["report"], "Missing argument 'RUN'"),
        (["sweep", "demo", "--famlies", "painters"], "No such option: --famlies"),
        (["sweep", "demo", "--tokens", "many"], "Invalid value for '--tokens'"),
        (["plan", "0-3", "--depth", "0"], "Invalid value for '--depth'"),
    ],
)
def test_slips_of_the_keyboard_are_answered(arguments: list[str], message: str) -> None:
    said = refused(*arguments)
    assert message in said
    assert "--help says what there is" in said


def test_what_needs_no_torch_does_not_wait_for_it() -> None:
    """Help, plans and options that can be refused at once do not import what takes seconds."""
    script = """
import sys
from layerwise.cli.app import main
for words in (["plan", "0-13 18-31"], ["sweep", "--help"], ["sweep", "x", "--families", "painter"],
              ["train", "layershufle", "--model", "x"], ["train", "METHODS", "--help"],
              ["train", "elc", "--help"], ["study", "layer-weights", "--help"], ["train", "growth", "--help"],
              ["train", "growth", "--schedule", "publisht"], ["study", "growth", "--arms", "publisht"],
              ["robustness", "--help"],
              ["evaluate", "--help"], ["evaluate", "x", "--suite", "blmp"]):
    sys.argv = ["layerwise", *words]
    try:
        main()
    except SystemExit:
        pass
heavy = {"torch", "transformers", "plotly", "scipy", "pyarrow", "numpy"} & set(sys.modules)
assert not heavy, heavy
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_misspelt_family_is_answered_before_the_model_is_looked_for() -> None:
    assert "did you mean painters?" in refused("sweep", "no-such-model", "--text", "none", "--families", "painter")
