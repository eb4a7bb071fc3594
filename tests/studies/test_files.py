"""Recipe files match the documentation and run in stages; options on the command line override them."""

import re
from pathlib import Path
from typing import Any

import pytest

from cli.command import layerwise, refused
from layerwise.errors import OptionError
from layerwise.runner.files import RECIPES, ExperimentFile
from layerwise.runner.verb import Verb, write_command

COMMANDS = Path(__file__).with_name("recipes.txt")
"""The command of every stage of every recipe; the recipes state where its values are documented."""

NEEDS = {"text": Path("texts"), "data": Path("data"), "images": "images"}
"""Inputs of recipes that only the reader has."""


def test_the_stages_of_recipes_are_the_documented_commands() -> None:
    """Every option of every stage has its documented value."""
    commands = []
    for name in RECIPES:
        file = ExperimentFile.read(name)
        given = {
            stage: {key: value for key, value in NEEDS.items() if _takes(verb, key)}
            for stage, verb in file.load_verbs().items()
        }
        for stage in file.list_calls(given):
            commands.append(f"{name} {stage.name}: {write_command(stage.call.verb, stage.call.options)}")
    assert commands == COMMANDS.read_text(encoding="utf-8").splitlines()


def _takes(verb: Verb, name: str) -> bool:
    return name in verb.arguments and not (name == "text" and "images" in verb.arguments)


def test_a_recipe_says_its_stages_and_what_they_take_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = layerwise("run", "layershuffle", "survey", "merge", "--dry-run")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("LayerShuffle (arXiv 2407.04513), whole: eight ways of training with five seeds each")
    assert "\n  survey  layerwise robustness runs/layershuffle/train --inside-images" in ended.out
    assert "not counted: it requires the run of twelve, which does not exist yet" in ended.out
    assert not any(tmp_path.iterdir())


def test_what_is_given_beside_a_file_stands_in_every_stage_that_has_it(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(
        "stages:\n"
        "  long: {experiment: train elc, steps: 400, seeds: 3}\n"
        "  plans: {experiment: sweep, model: demo, families: [painters]}\n"
    )
    file = ExperimentFile.read(tmp_path / "two.yaml")
    words = [
        "--steps",
        "600",
        "--families",
        "looped,gain_sweep",
        "--no-similarity",
        "--set",
        "lr_scheduler_type=linear",
    ]
    long, plans = file.list_calls(
        file.select(["long"]).parse_options(words[:2]) | file.select(["plans"]).parse_options(words[2:5])
    )
    assert (long.call.steps, long.call.seeds) == (600, 3)
    assert (plans.call.families, plans.call.similarity) == (("looped", "gain_sweep"), False)
    assert plans.call.run == Path("runs/two/plans")
    assert file.select(["long"]).parse_options(words[5:]) == {"long": {"set": ("lr_scheduler_type=linear",)}}


def test_an_option_leaves_stages_alone_that_set_it_otherwise_than_the_first_and_one_stage_can_be_named() -> None:
    def configurations(recipe: str, *words: str) -> dict[str, Any]:
        file = ExperimentFile.read(recipe)
        return {stage.name: stage.call for stage in file.list_calls(file.parse_options(words))}

    shuffled = configurations("layershuffle", "--images", "digits", "--seeds", "1", "--merge.draws=4", "--model", "vit")
    assert (shuffled["train"].seeds, shuffled["twelve"].seeds) == (1, 12), "a training of one model cannot be merged"
    assert (shuffled["train"].model, shuffled["twelve"].model) == ("vit", "vit")
    words = ("--text", "texts", "--data", "glue", "--model", "demo")
    with pytest.raises(OptionError, match="stage healed: the plan 0-13 18-31 belongs to meta-llama/Llama-2-7b-hf"):
        configurations("painters", *words)
    painted = configurations("painters", *words, "--healed.plan", "0-3 6-11")
    models = {name: config.model for name, config in painted.items()}
    bert = "google-bert/bert-large-uncased"
    assert models == {"curves": "demo", "benchmarks": "demo", "healed": "demo", "tuned": bert, "frozen": bert}
    assert (painted["healed"].plan, painted["curves"].plans) == ("0-3 6-11", ())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("painters", "--healed.familes", "x"), "painters has no option '--familes'"),
        (("painter",), "Unknown recipe, file or run: 'painter'; did you mean painters?"),
        (("painters", "curve"), "painters has no stage 'curve'; did you mean curves?"),
        (("painters", "curves", "--familes", "looped"), "painters has no option '--familes'; did you mean --families"),
        (("painters", "curves", "--families"), "--families must be followed by a value"),
    ],
)
def test_what_a_recipe_does_not_have_is_refused_with_what_it_has(words: tuple[str, ...], said: str) -> None:
    assert said in refused("run", *words, "--dry-run")


def test_the_stage_that_cannot_be_is_named_with_those_that_can() -> None:
    with pytest.raises(
        OptionError, match=re.escape("To skip this stage: layerwise run painters curves benchmarks healed frozen")
    ):
        ExperimentFile.read("painters").list_calls({"tuned": {"seeds": 0}})
