"""Files of experiments: the recipes say what the documents say, in stages, and what is given beside a file stands."""

import re
from pathlib import Path
from typing import Any

import pytest

from cli.command import layerwise, refused
from layerwise.errors import OptionError
from layerwise.runner.files import RECIPES, ExperimentFile
from layerwise.runner.verb import Verb, write_command

BERT = {
    "suite": ("glue",),
    "tasks": ("cola", "mrpc", "qnli", "rte", "sst2", "stsb", "wnli"),
    "families": ("painters",),
    "batch_size": 32,
    "epochs": 3,
    "patience": 3,
    "max_length": 128,
}
TUNED = {
    "size": "published",
    "seeds": 3,
    "frontier": True,
    "shorter": 416 / 656,
    "learning_rates": (5e-4, 1e-3, 2e-3),
    "warmups": (0.025, 0.1),
}
BABYLM = {"learning_rate": 5e-5, "batch_size": 64, "epochs": 10, "patience": 10, "max_length": 128}
REFINED = {
    "model": "google/vit-base-patch16-224",
    "epochs": 20.0,
    "learning_rate": 1e-4,
    "batch_sizes": (128, 640),
    "augmentation": "none",
    "select_on": "reported",
}
DOCUMENTS = {
    ("layershuffle", "train"): {
        **REFINED,
        "methods": (
            *("layershuffle", "layershuffle-position", "layershuffle-predict", "layerdrop"),
            *("retrained-9", "retrained-6", "retrained-3"),
        ),
        "seeds": 5,
        "drop_rate": 0.2,
    },
    ("layershuffle", "survey"): {"inside_images": 1_000, "select_on": "reported"},
    ("layershuffle", "twelve"): {**REFINED, "methods": ("layershuffle",), "seeds": 12},
    ("layershuffle", "merge"): {"draws": 100, "select_on": "reported"},
    ("painters", "curves"): {
        "model": "meta-llama/Llama-2-7b-hf",
        "families": ("painters", "leave_one_out", "swap_adjacent", "looped", "gain_sweep", "repeat_blocks"),
        "loops": "1-28",
        "minutes": 480.0,
        "times": "2,3",
    },
    ("painters", "benchmarks"): {
        "model": "meta-llama/Llama-2-7b-hf",
        "tokens": 10_000,
        "families": ("painters",),
        "tasks": ("arc_challenge", "hellaswag", "gsm8k", "winogrande", "lambada_openai"),
    },
    ("painters", "healed"): {
        "model": "meta-llama/Llama-2-7b-hf",
        "plan": "0-13 18-31",
        "method": "full",
        "teacher": "none",
        "controls": ("whole",),
        "windows": 16,
        "tasks": ("arc_challenge",),
        "learning_rates": (5e-5,),
        "batch_size": 64,
        "epochs": 1.0,
    },
    ("painters", "tuned"): {**BERT, "model": "google-bert/bert-large-uncased", "learning_rate": 2e-5},
    ("painters", "frozen"): {**BERT, "model": "google-bert/bert-large-uncased", "train": "head", "learning_rate": 3e-2},
    ("heterogeneity", "diagnose"): {
        "model": "HuggingFaceTB/SmolLM2-135M",
        "recovery_steps": 200,
        "all_layers": True,
        "minutes": 240.0,
    },
    ("heterogeneity", "phases"): {"schedules": ("published",), "size": "published", "steps": 656, "match": "tokens"},
    ("heterogeneity", "growth"): {
        **TUNED,
        "schedules": ("published", "importance", "permuted", "reversed", "random", "stacking", "ramp"),
        "steps": 656,
        "max_epochs": 4.0,
    },
    ("growth", "growth"): {
        **TUNED,
        "schedules": ("published", "importance", "permuted", "reversed", "random", "stacking", "ramp"),
        "steps": 200,
        "learning_rates": (1.2e-2, 2.4e-2, 4.8e-2),
        "warmups": (0.1, 0.4),
        "size": "tiny",
    },
    ("heterogeneity", "published"): {
        **TUNED,
        "schedules": ("published",),
        "epochs": 11.0,
        "max_epochs": 85.0,
    },
    ("heterogeneity", "core"): {
        "schedules": ("published",),
        "size": "published",
        "match": "tokens",
        "epochs": 193.2,
        "max_epochs": 194.0,
        "baseline": False,
    },
    ("elc", "train"): {"size": "small"},
    ("elc", "evaluate"): {"suite": ("blimp", "supplement", "glue", "msgs"), "published": "elc-bert"},
    ("elc", "weights"): {
        "suite": ("blimp",),
        "without_edges": ("30%", "70%", *(f"*<-{source}" for source in range(6))),
        "limit": 100,
    },
    ("elc", "study"): {
        "size": "small",
        "seeds": 5,
        "variants": (
            *("ltg", "elc", "zero", "elc-identity", "elc-frozen", "denseformer"),
            *("elc-bias-0.5", "elc-bias-2", "elc-bias-4"),
            *(f"{variant}-share-{share}" for share in (0.125, 0.25, 0.5) for variant in ("ltg", "elc")),
        ),
    },
    ("elc", "equal-seconds"): {
        "size": "small",
        "seeds": 5,
        "variants": ("ltg", "elc", "elc-frozen"),
        "seconds": 86_400.0,
    },
    ("elc", "fine-tuning"): {
        "suite": ("glue",),
        "layer_weights": ("held", "added"),
        "curve_points": 10,
        "seeds": 1,
        **BABYLM,
    },
    ("elc", "signals"): {
        "suite": ("msgs-ours", "attribution"),
        "tasks": ("control main_verb", "ambiguous main_verb_relative_position"),
        "layer_weights": ("held", "added"),
        "learning_rate": 3e-4,
        "epochs": 4,
        "patience": 2,
        "max_length": 48,
        "seeds": 1,
    },
}
"""By recipe and stage: the documented value of each option; the recipes state where it is documented."""

NEEDS = {"text": Path("texts"), "data": Path("data"), "images": "images"}
"""Inputs of recipes that only the reader has."""


def test_every_recipe_says_what_the_documents_say() -> None:
    stages = {}
    for name in RECIPES:
        file = ExperimentFile.read(name)
        given = {
            stage: {key: value for key, value in NEEDS.items() if _takes(verb, key)}
            for stage, verb in file.load_verbs().items()
        }
        for stage in file.list_calls(given):
            written = {key for key in file.stages[stage.name] if key not in ("experiment", "run")}
            stages[name, stage.name] = {
                key: value for key in written if "runs/" not in str(value := getattr(stage.call, key))
            }
    assert stages == DOCUMENTS


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


def test_a_stage_that_reads_another_waits_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    file = ExperimentFile.read("layershuffle")
    stages = {stage.name: stage for stage in file.list_calls()}
    assert stages["survey"].list_missing() == ("train",)
    assert "layerwise robustness merge runs/layershuffle/twelve --select-on" in write_command(
        stages["merge"].call.verb, stages["merge"].call.options
    )
    assert stages["twelve"].list_missing() == ()


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
