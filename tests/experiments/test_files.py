"""Files of experiments: the recipes say what the documents say, in stages, and what is given beside a file stands."""

import re
from pathlib import Path
from typing import Any

import pytest

from cli.command import layerwise, refused
from layerwise.errors import OptionError
from layerwise.experiments.files import RECIPES, ExperimentFile
from layerwise.experiments.spelling import as_command

BERT = {
    "suite": (("glue",), "Painters, section 2"),
    "tasks": (("cola", "mrpc", "qnli", "rte", "sst2", "stsb", "wnli"), "Painters, appendix A.8"),
    "families": (("painters",), "Painters, section 3"),
    "batch_size": (32, "Painters, bert/example.sh"),
    "epochs": (3, "Painters, bert/example.sh"),
    "patience": (3, "Painters, bert/example.sh: no early end"),
    "max_length": (128, "Painters, bert/example.sh"),
}
BABYLM = {
    "learning_rate": (5e-5, "BabyLM 2023, evaluation pipeline"),
    "batch_size": (64, "BabyLM 2023, evaluation pipeline"),
    "epochs": (10, "BabyLM 2023, evaluation pipeline"),
    "patience": (10, "BabyLM 2023, evaluation pipeline"),
    "max_length": (128, "BabyLM 2023, evaluation pipeline"),
}
REFINED = {
    "model": ("google/vit-base-patch16-224", "LayerShuffle, section 4: ViT-B/16, its weights on huggingface"),
    "epochs": (20.0, "LayerShuffle, section 4: at most 20 epochs"),
    "learning_rate": (1e-4, "LayerShuffle, section 4: initial learning rate"),
    "batch_sizes": ((128, 640), "LayerShuffle, section 4: batches of 640 and 128, of each method the better one"),
    "augmentation": ("none", "LayerShuffle, section 4: images are resized and normalised"),
    "select_on": ("reported", "LayerShuffle, section 4: the model of least loss on the validation set is reported"),
}
DOCUMENTS = {
    ("layershuffle", "train"): {
        **REFINED,
        "methods": (
            (
                *("layershuffle", "layershuffle-position", "layershuffle-predict", "layerdrop"),
                *("retrained-9", "retrained-6", "retrained-3"),
            ),
            "LayerShuffle, table 1 and figure 1; with the baseline eight",
        ),
        "seeds": (5, "LayerShuffle, section 4: we train 5 networks"),
        "drop_rate": (0.2, "LayerShuffle, section 4.2: LayerDrop with a rate of 0.2"),
    },
    ("layershuffle", "survey"): {
        "inside_images": (1_000, "LayerShuffle, section 4.3: 1,000 randomly sampled images"),
        "select_on": ("reported", "LayerShuffle, section 4: as in training"),
    },
    ("layershuffle", "twelve"): {
        **REFINED,
        "methods": (("layershuffle",), "LayerShuffle, table 2; the baseline is trained beside"),
        "seeds": (12, "LayerShuffle, section 4.4: 12 models"),
    },
    ("layershuffle", "merge"): {
        "draws": (100, "LayerShuffle, section 4.4: 100 draws of 12!"),
        "select_on": ("reported", "LayerShuffle, section 4: as in training"),
    },
    ("painters", "curves"): {
        "model": ("meta-llama/Llama-2-7b-hf", "Painters, section 2"),
        "families": (
            ("painters", "leave_one_out", "swap_adjacent", "looped", "gain_sweep", "repeat_blocks"),
            "Painters, figures 2 to 10 and 17; gain_sweep is the null of figure 10",
        ),
        "loops": ("1-28", "Painters, figure 10: 1 to 28 iterations"),
        "minutes": (480.0, "ours: a night, since all of a text takes thousands of hours"),
        "times": ("2,3", "Painters, figure 17: double and triple repeat"),
    },
    ("painters", "benchmarks"): {
        "model": ("meta-llama/Llama-2-7b-hf", "Painters, section 2"),
        "tokens": (10_000, "ours: the stage is about the benchmarks"),
        "families": (("painters",), "Painters, figures 4 to 9: the strategies alone"),
        "tasks": (
            ("arc_challenge", "hellaswag", "gsm8k", "winogrande", "lambada_openai"),
            "Painters, section 2; the tasks of its code",
        ),
    },
    ("painters", "healed"): {
        "model": ("meta-llama/Llama-2-7b-hf", "Painters, appendix A.2"),
        "plan": ("0-13 18-31", "ours: the plan whose healed model is written; the windows are those of figure 13"),
        "method": ("full", "Painters, appendix A.2: full fine-tuning"),
        "teacher": ("none", "Painters, appendix A.2: by the labels"),
        "controls": (("whole",), "ours: the whole model trained as long"),
        "windows": (16, "Painters, figure 13: up to half of the layers"),
        "tasks": (("arc_challenge",), "Painters, figure 13; the task of its code"),
        "learning_rates": ((5e-5,), "Painters, appendix A.2"),
        "batch_size": (64, "Painters, appendix A.2"),
        "epochs": (1.0, "Painters, appendix A.2"),
    },
    ("painters", "tuned"): {
        **BERT,
        "model": ("google-bert/bert-large-uncased", "Painters, section 2"),
        "learning_rate": (2e-5, "Painters, bert/example.sh"),
    },
    ("painters", "frozen"): {
        **BERT,
        "model": ("google-bert/bert-large-uncased", "Painters, section 2"),
        "train": ("head", "Painters, appendix A.9: the classifier alone"),
        "learning_rate": (3e-2, "Painters, bert/run_glue.py"),
    },
    ("heterogeneity", "diagnose"): {
        "model": ("HuggingFaceTB/SmolLM2-135M", "Heterogeneity, the model"),
        "recovery_steps": (200, "Heterogeneity, recovery speed: up to 200 steps"),
        "all_layers": (True, "Heterogeneity, recovery speed: every layer"),
        "minutes": (240.0, "ours: all of a text takes days"),
    },
    ("heterogeneity", "phases"): {
        "schedule": ("published", "Heterogeneity, Growth Transformer Training: six phases"),
        "size": ("published", "Heterogeneity, proof of concept: 12 layers, 9.57 M parameters"),
        "steps": (656, "Heterogeneity, proof of concept: 656 steps"),
        "match": ("tokens", "Heterogeneity, proof of concept: equal steps"),
    },
    ("heterogeneity", "growth"): {
        "size": ("published", "Heterogeneity, proof of concept: 12 layers, 9.57 M parameters"),
        "steps": (656, "Heterogeneity, proof of concept: 656 steps"),
        "shorter": (416 / 656, "Heterogeneity, proof of concept: 416 of 656 steps"),
        "max_epochs": (4.0, "so that 656 steps at equal operations run on the default text"),
    },
    ("heterogeneity", "published"): {
        "size": ("published", "Heterogeneity, proof of concept: 12 layers, 9.57 M parameters"),
        "arms": (("uniform", "published"), "Heterogeneity, proof of concept: uniform and grown"),
        "epochs": (11.0, "Heterogeneity, proof of concept: uniform reads the text 11 times"),
        "max_epochs": (85.0, "Heterogeneity, proof of concept: at most, as often as the core"),
        "shorter": (416 / 656, "Heterogeneity, proof of concept: 416 of 656 steps"),
    },
    ("heterogeneity", "core"): {
        "schedule": ("published", "Heterogeneity, Growth Transformer Training: six phases"),
        "size": ("published", "Heterogeneity, proof of concept: 12 layers, 9.57 M parameters"),
        "match": ("tokens", "Heterogeneity, proof of concept: equal steps"),
        "epochs": (193.2, "Heterogeneity, proof of concept: 85 times for the core, which learns in 44 % of the steps"),
        "max_epochs": (194.0, "so that the core's 85 times are not refused"),
        "baseline": (False, "ours: uniform is the stage published"),
    },
    ("elc", "train"): {"size": ("small", "ELC-BERT, table 5: strict-small")},
    ("elc", "evaluate"): {
        "suite": (("blimp", "supplement", "glue", "msgs"), "ELC-BERT, section 5"),
        "published": ("elc-bert", "ELC-BERT, model card"),
    },
    ("elc", "weights"): {
        "suite": (("blimp",), "ELC-BERT, section 5"),
        "without_edges": (("30%", "70%", *(f"*<-{source}" for source in range(6))), "ours: which sources matter"),
        "limit": (100, "ours: every pair is scored under 169 conditions at most"),
    },
    ("elc", "study"): {
        "size": ("small", "ELC-BERT, table 5: strict-small"),
        "seeds": (5, "ours: enough for an interval over seeds"),
        "bias": ((0.0, 0.5, 1.0, 2.0, 4.0), "ours: a grid over the initial weights"),
        "shares": (("1/8", "1/4", "1/2", "1"), "ours: data efficiency"),
        **{f"glue_{name}": value for name, value in BABYLM.items()},
    },
}
"""By recipe and stage: the documented value of each option, and where it is documented."""

NEEDS = {"text": Path("texts"), "data": Path("data"), "glue": Path("glue"), "images": "images"}
"""Inputs of recipes that only the reader has."""


def test_every_recipe_says_what_the_documents_say() -> None:
    stages = {}
    for name in RECIPES:
        file = ExperimentFile.read(name)
        given = {
            stage: {key: value for key, value in NEEDS.items() if _takes(kind, key)}
            for stage, kind in file.kinds().items()
        }
        for stage in file.configurations(given):
            written = {key for key in file.stages[stage.name] if key not in ("experiment", "run")}
            stages[name, stage.name] = {
                key: value for key in written if "runs/" not in str(value := getattr(stage.config, key))
            }
    assert stages == {
        key: {name: value for name, (value, _) in settings.items()} for key, settings in DOCUMENTS.items()
    }


def _takes(kind: type, name: str) -> bool:
    return name in getattr(kind, "__dataclass_fields__", {}) and not (name == "text" and "images" in kind.__dict__)


def test_a_recipe_says_its_stages_and_what_they_take_before_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = layerwise("run", "layershuffle", "survey", "merge", "--dry-run")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("LayerShuffle (arXiv 2407.04513), whole: eight ways of training with five seeds each")
    assert "\n  survey  layerwise robustness runs/layershuffle/train --select-on reported" in ended.out
    assert "not counted: it reads the run of twelve, which is not there yet" in ended.out
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


def test_an_option_leaves_stages_alone_that_set_it_otherwise_than_the_first_and_one_stage_can_be_named() -> None:
    def configurations(recipe: str, *words: str) -> dict[str, Any]:
        file = ExperimentFile.read(recipe)
        return {stage.name: stage.config for stage in file.configurations(file.options(words))}

    shuffled = configurations("layershuffle", "--images", "digits", "--seeds", "1", "--merge.draws=4", "--model", "vit")
    assert (shuffled["train"].seeds, shuffled["twelve"].seeds) == (1, 12), "a training of one model cannot be merged"
    assert (shuffled["train"].model, shuffled["twelve"].model) == ("vit", "vit")
    words = ("--text", "texts", "--data", "glue", "--model", "demo")
    with pytest.raises(OptionError, match="stage healed: its plan, 0-13 18-31, is of meta-llama/Llama-2-7b-hf; give"):
        configurations("painters", *words)
    painted = configurations("painters", *words, "--healed.plan", "0-3 6-11")
    models = {name: config.model for name, config in painted.items()}
    bert = "google-bert/bert-large-uncased"
    assert models == {"curves": "demo", "benchmarks": "demo", "healed": "demo", "tuned": bert, "frozen": bert}
    assert (painted["healed"].plan, painted["curves"].plan) == ("0-3 6-11", ())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("painters", "--healed.familes", "x"), "painters has no option '--familes'"),
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
