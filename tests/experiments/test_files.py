"""Files of experiments: the recipes say what the documents say, in stages, and what is given beside a file stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cli.command import layerwise, refused
from layerwise.errors import OptionError
from layerwise.experiments.files import ExperimentFile
from layerwise.experiments.spelling import as_command


def test_a_recipe_says_its_stages_and_what_they_take_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = layerwise("run", "layershuffle", "survey", "merge", "--dry-run")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("LayerShuffle (arXiv 2407.04513), whole: eight ways of training with five seeds each")
    assert "\n  survey  layerwise robustness runs/layershuffle/train --select-on reported" in ended.out
    assert "not forecast: it reads the run of twelve, which is not there yet" in ended.out
    assert not any(tmp_path.iterdir())


def test_a_stage_that_reads_another_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = ExperimentFile.read("layershuffle")
    stages = {stage.name: stage for stage in file.configurations()}
    assert stages["survey"].waits_for() == ("train",)
    assert "layerwise robustness merge runs/layershuffle/twelve --run runs/" in as_command(stages["merge"].config)
    assert stages["twelve"].waits_for() == ()


def test_what_is_given_beside_a_file_stands_in_every_stage_that_has_it(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(
        "stages:\n"
        "  long: {experiment: train elc, steps: 400, seeds: 3}\n"
        "  plans: {experiment: sweep, model: demo, families: [painters]}\n"
    )
    file = ExperimentFile.read(tmp_path / "two.yaml")
    words = ["--epochs", "2", "--families", "looped,gain_sweep", "--no-similarity", "--set", "lr_scheduler_type=linear"]
    long, plans = file.configurations(
        file.chosen(["long"]).options(words[:2]) | file.chosen(["plans"]).options(words[2:5])
    )
    assert (long.config.steps, long.config.epochs, long.config.seeds) == (None, 2.0, 3)
    assert (plans.config.families, plans.config.similarity) == (("looped", "gain_sweep"), False)
    assert plans.config.run == Path("runs/two/plans")
    assert file.chosen(["long"]).options(words[5:]) == {"long": {"set": ("lr_scheduler_type=linear",)}}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("painter",), "there is no recipe, file or run 'painter'; did you mean painters?"),
        (("painters", "curve"), "painters has no stage 'curve'; did you mean curves?"),
        (("painters", "curves", "--familes", "looped"), "painters has no option '--familes'; did you mean --families"),
        (("painters", "curves", "--families"), "--families needs a value behind it"),
        (("painters",), "the stage tuned: glue is not part of layerwise: give the folder that holds its files, --data"),
    ],
)
def test_what_a_recipe_does_not_have_is_refused_with_what_it_has(words: tuple[str, ...], said: str) -> None:
    assert said in refused("run", *words, "--dry-run")


def test_the_stage_that_cannot_be_is_named_with_those_that_can() -> None:
    with pytest.raises(
        OptionError, match=re.escape("without this stage: layerwise run painters curves benchmarks healed frozen")
    ):
        ExperimentFile.read("painters").configurations()
