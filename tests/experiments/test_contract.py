"""A configuration is one, whether it is written as a command, as a file or in Python: every verb, every example."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.command import layerwise
from experiments.test_verbs import FUNCTIONS
from layerwise.cli import command
from layerwise.experiments import runner
from layerwise.experiments.catalogue import VERBS, configuration
from layerwise.experiments.experiment import Configuration, Experiment
from layerwise.experiments.files import ExperimentFile, to_yaml
from layerwise.experiments.option import given_options
from layerwise.experiments.spelling import as_command

SETTINGS = [
    ("train robust", "layershuffle,layerdrop --model demo-vit --set compile=true --set weight_decay=0.5"),
    ("diagnose", "demo --parts recovery --set recovery_layers=1,2"),
    ("evaluate", "demo --suite pairs --limit 3 --set temperature=2 --set too-long=skip"),
    ("train elc", "--text FOLDER --set evals=2 --set padding_free=true --initialisation zero"),
]

EXAMPLES = [
    pytest.param(verb, example, id=f"{verb} {example}")
    for verb, example in [*((verb, each) for verb in VERBS for each in configuration(verb).EXAMPLES), *SETTINGS]
]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Configuration]:
    monkeypatch.chdir(tmp_path)
    Path("my_pairs.jsonl").touch()
    Path("mergekit.yml").write_text("0-3")
    configs: list[Configuration] = []

    def kept(config: Configuration, **_: Any) -> int:
        configs.append(config)
        return 0

    monkeypatch.setattr(command, "carry_out", kept)

    def reading(*words: str) -> Configuration:
        configs.clear()
        ended = layerwise(*words)
        assert ended.code == 0, ended.err
        return configs[0]

    return reading


@pytest.mark.parametrize(("verb", "example"), EXAMPLES)
def test_a_command_a_file_and_a_call_are_one_configuration(
    verb: str, example: str, read: Callable[..., Configuration], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = read(*verb.split(), *shlex.split(example))
    assert type(config) is configuration(verb)
    assert read(*shlex.split(as_command(config))[1:]) == config
    file, written = tmp_path / "experiment.yaml", to_yaml(config)
    for text in (written, re.sub(r"^\w+:", lambda name: name[0].replace("_", "-"), written, flags=re.MULTILINE)):
        file.write_text(text)
        (stage,) = ExperimentFile.read(file).configurations()
        assert stage.config == config
    calls: list[Configuration] = []

    def kept(config: Configuration, *_: Any, **__: Any) -> SimpleNamespace:
        calls.append(config)
        return SimpleNamespace(folder=tmp_path)

    monkeypatch.setattr(runner, "perform", kept)
    if isinstance(config, Experiment):
        FUNCTIONS[verb](**given_options(config))
        assert calls == [config]
