"""Presets: the settings of a published experiment are the documents', and what is given beside them stands."""

from __future__ import annotations

from dataclasses import MISSING

import pytest

from cli.command import layerwise
from layerwise.errors import OptionError
from layerwise.experiments.catalogue import CATALOGUE, configuration
from layerwise.experiments.files import experiment_of, to_yaml
from layerwise.experiments.option import configured, options_of
from layerwise.experiments.robustness.config import RobustTraining

VERBS = [verb for verbs in CATALOGUE.values() for verb in verbs]

GLUE_OF_BABYLM = {
    "glue_learning_rate": (5e-5, "BabyLM 2023, evaluation pipeline"),
    "glue_batch_size": (64, "BabyLM 2023, evaluation pipeline"),
    "glue_epochs": (10, "BabyLM 2023, evaluation pipeline"),
    "glue_patience": (10, "BabyLM 2023, evaluation pipeline"),
    "glue_max_length": (128, "BabyLM 2023, evaluation pipeline"),
}
DOCUMENTS = {
    ("train robust", "paper"): {
        "seeds": (5, "LayerShuffle, section 4: we train 5 networks"),
        "epochs": (20.0, "LayerShuffle, section 4: at most 20 epochs"),
        "learning_rate": (1e-4, "LayerShuffle, section 4: initial learning rate"),
        "batch_size": (640, "LayerShuffle, section 4: batches of 640 and 128"),
        "augmentation": ("none", "LayerShuffle, section 4: images are resized and normalised"),
        "drop_rate": (0.2, "LayerShuffle, section 4.2: LayerDrop with a rate of 0.2"),
        "select_on": ("reported", "LayerShuffle, section 4: the model of least loss on the validation set is reported"),
    },
    ("robustness", "paper"): {
        "seeds": (5, "LayerShuffle, section 4: we train 5 networks"),
        "inside_images": (1_000, "LayerShuffle, section 4.3: 1,000 randomly sampled images"),
        "select_on": ("reported", "LayerShuffle, section 4: as in training"),
    },
    ("merge", "paper"): {
        "draws": (100, "LayerShuffle, section 4.4: 100 draws of 12!"),
        "select_on": ("reported", "LayerShuffle, section 4: as in training"),
    },
    ("sweep", "paper"): {
        "families": (
            ("painters", "leave_one_out", "swap_adjacent", "looped", "gain_sweep", "repeat_blocks"),
            "Painters, figures 2 to 10 and 17; gain_sweep is the null of figure 10",
        ),
        "loops": ("1-28", "Painters, figure 10: 1 to 28 iterations"),
        "times": ("2,3", "Painters, figure 17: double and triple repeat"),
        "tasks": (
            ("arc_challenge", "hellaswag", "gsm8k", "winogrande", "lambada_openai"),
            "Painters, section 2; the tasks of its code",
        ),
    },
    ("evaluate", "paper"): {
        "suite": (("glue",), "Painters, section 2"),
        "tasks": (("cola", "mrpc", "qnli", "rte", "sst2", "stsb", "wnli"), "Painters, appendix A.8"),
        "families": (("painters",), "Painters, section 3"),
        "learning_rate": (2e-5, "Painters, bert/example.sh"),
        "batch_size": (32, "Painters, bert/example.sh"),
        "epochs": (3, "Painters, bert/example.sh"),
        "patience": (3, "Painters, bert/example.sh: no early end"),
        "max_length": (128, "Painters, bert/example.sh"),
    },
    ("evaluate", "frozen"): {
        "suite": (("glue",), "Painters, appendix A.9"),
        "tasks": (("cola", "mrpc", "qnli", "rte", "sst2", "stsb", "wnli"), "Painters, appendix A.8"),
        "families": (("painters",), "Painters, section 3"),
        "train": ("head", "Painters, appendix A.9: the classifier alone"),
        "learning_rate": (3e-2, "Painters, bert/run_glue.py"),
        "batch_size": (32, "Painters, bert/example.sh"),
        "epochs": (3, "Painters, bert/example.sh"),
        "patience": (3, "Painters, bert/example.sh: no early end"),
        "max_length": (128, "Painters, bert/example.sh"),
    },
    ("evaluate", "babylm"): {
        "suite": (("blimp", "supplement", "glue", "msgs"), "ELC-BERT, section 5"),
        "learning_rate": (5e-5, "BabyLM 2023, evaluation pipeline"),
        "batch_size": (64, "BabyLM 2023, evaluation pipeline"),
        "epochs": (10, "BabyLM 2023, evaluation pipeline"),
        "patience": (10, "BabyLM 2023, evaluation pipeline"),
        "max_length": (128, "BabyLM 2023, evaluation pipeline"),
    },
    ("diagnose", "paper"): {
        "recovery_steps": (200, "Heterogeneity, recovery speed: up to 200 steps"),
        "all_layers": (True, "Heterogeneity, recovery speed: every layer"),
    },
    ("train growth", "paper"): {
        "schedule": ("published", "Heterogeneity, Growth Transformer Training: six phases"),
        "size": ("published", "Heterogeneity, proof of concept: 12 layers, 9.57 M parameters"),
        "steps": (656, "Heterogeneity, proof of concept: 656 steps"),
        "match": ("tokens", "Heterogeneity, proof of concept: equal steps"),
    },
    ("study growth", "paper"): {
        "size": ("published", "Heterogeneity, proof of concept: 12 layers, 9.57 M parameters"),
        "steps": (656, "Heterogeneity, proof of concept: 656 steps"),
        "shorter": (416 / 656, "Heterogeneity, proof of concept: 416 of 656 steps"),
    },
    ("study layer-weights", "paper"): {"size": ("small", "ELC-BERT, table 5: strict-small"), **GLUE_OF_BABYLM},
    ("study layer-weights", "strict"): {"size": ("base", "ELC-BERT, table 5: strict"), **GLUE_OF_BABYLM},
    ("train elc", "paper"): {"size": ("small", "ELC-BERT, table 5: strict-small")},
    ("train elc", "strict"): {"size": ("base", "ELC-BERT, table 5: strict")},
}
"""What the documents say, by verb and preset: each option's value, and where that stands."""


def test_every_preset_says_what_the_documents_say() -> None:
    """A preset without its lines in the table fails, and so does a line without its preset."""
    presets = {(verb, name): dict(settings) for verb in VERBS for name, settings in configuration(verb).PRESETS.items()}
    assert presets == {
        key: {name: value for name, (value, _) in settings.items()} for key, settings in DOCUMENTS.items()
    }


@pytest.mark.parametrize(("verb", "name"), DOCUMENTS)
def test_a_preset_makes_a_configuration(verb: str, name: str) -> None:
    """Every setting is an option of the verb, in bounds, and read; the manifest then holds the settings."""
    kind = configuration(verb)
    needed = {each: _some(each) for each, (field, _) in options_of(kind).items() if _is_required(kind, each)}
    beside = {"evaluate": {"data": "a-folder"}, "study layer-weights": {"glue": "a-folder"}}.get(verb, {})
    config = configured(kind, {**needed, **beside, "preset": name}, "here")
    for option, value in kind.PRESETS[name].items():
        assert getattr(config, option) == value
    assert "preset" not in to_yaml(config)  # type: ignore[arg-type]


def _is_required(kind: type, name: str) -> bool:
    return options_of(kind)[name][0].default is MISSING


def _some(name: str) -> object:
    return {"methods": ["all"], "models": ["a", "b"]}.get(name, "demo-vit")


def test_what_is_given_stands() -> None:
    """An option beside a preset replaces the preset's value, also where it is the option's default."""
    assert RobustTraining.__dataclass_fields__["seeds"].default == 3
    given = {"experiment": "train robust", "methods": ["all"], "model": "demo-vit", "preset": "paper", "seeds": 3}
    config = experiment_of(given, "here")
    assert isinstance(config, RobustTraining)
    assert (config.seeds, config.epochs) == (3, 20.0)


def test_a_length_that_is_given_replaces_the_length_of_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of alternatives the preset's is left out; without a preset two of them are refused."""
    kind = configuration("train elc")
    monkeypatch.setattr(kind, "PRESETS", {"paper": {"steps": 31_250, "seeds": 2}})
    config = configured(kind, {"preset": "paper", "epochs": 1.0}, "here")
    assert (config.steps, config.epochs, config.seeds) == (None, 1.0, 2)
    with pytest.raises(OptionError, match="--epochs and --steps each say how long to train; give one of them"):
        configured(kind, {"steps": 3, "epochs": 1.0}, "here")


def test_settings_that_nothing_would_read_are_left_out() -> None:
    """The rate of LayerDrop is of no use to LayerShuffle: given it is refused, in a preset it is left out."""
    config = configured(RobustTraining, {"methods": ["layershuffle"], "model": "demo-vit", "preset": "paper"}, "here")
    assert config.drop_rate is None
    assert config.seeds == 5
    with pytest.raises(OptionError, match="--drop-rate does nothing here"):
        configured(RobustTraining, {"methods": ["layershuffle"], "model": "demo-vit", "drop_rate": 0.2}, "here")


def test_what_is_missing_beside_a_preset_is_named() -> None:
    """A preset does not stand for what must be given."""
    with pytest.raises(OptionError, match="METHODS must be given"):
        configured(RobustTraining, {"model": "demo-vit", "preset": "paper"}, "here")


def test_the_command_line_takes_a_preset_and_its_help_writes_it_out() -> None:
    """`--help` shows what a preset stands for as options; an unknown name is refused with what there is."""
    assert "--seeds 5" in " ".join(layerwise("train", "robust", "--help").out.split())
    ended = layerwise("train", "robust", "layershuffle", "--model", "demo-vit", "--preset", "papr")
    assert ended.code == 2
    assert "there is no preset 'papr'; did you mean paper" in ended.err
    assert "layerwise verify has none" in str(_refused("verify"))


def _refused(verb: str) -> OptionError:
    with pytest.raises(OptionError) as caught:
        configured(configuration(verb), {"model": "demo", "preset": "paper"}, "here")
    return caught.value
