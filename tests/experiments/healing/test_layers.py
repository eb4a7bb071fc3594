"""The layers that LoRA trains: how they are named, which stand beside them, and verdicts on planted losses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import layerwise as library
from cli.command import layerwise, refused
from cli.conftest import save_llama, save_texts
from layerwise.errors import PlanError, TrainError
from layerwise.experiments.healing.layers import AdaptedLayers, chosen_layers
from layerwise.experiments.healing.rows import layer_contrasts
from layerwise.experiments.reporter import Silent
from layerwise.plan import Plan
from layerwise.report.data import ReportData
from layerwise.report.kinds.healing import layer_findings
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from tier import by_tier

WHOLE = Plan.parse("0-11")
SETS = AdaptedLayers((1, 4), (0, 1, 2, 4, 5), {0: 10, 1: 10, 2: 30, 4: 10, 5: 10}, rank=16)


@pytest.mark.parametrize(("text", "layers"), [("4,5,8-10", (4, 5, 8, 9, 10)), ("3", (3,)), ("5, 1", (1, 5))])
def test_layers_are_named_by_numbers_and_ranges(text: str, layers: tuple[int, ...]) -> None:
    assert chosen_layers(text, WHOLE) == layers


@pytest.mark.parametrize(
    ("text", "plan", "words"),
    [
        ("2-4", "0 1 4 6-11", "does not run layer 2, 3"),
        ("0-11", "0-11", "nothing to compare them with"),
        ("no/run:3", "0-11", "there is no run no/run"),
        ("all", "0-11", "as in lora:4,5,8-10, or a run"),
    ],
)
def test_other_texts_are_refused(text: str, plan: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        chosen_layers(text, Plan.parse(plan))


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("lora:", "lora alone with layers"),
        ("full:3", "lora alone with layers"),
        ("lorra", "did you mean lora"),
        ("lora:12", "does not run layer 12"),
    ],
)
def test_a_method_that_there_is_not_is_refused_before_a_model_is_opened(method: str, words: str) -> None:
    assert words in " ".join(refused("heal", "no/model/there", "--plan", "0-11", "--method", method).split())


def test_no_arm_has_more_weights_and_the_random_one_is_another() -> None:
    assert SETS.arms() == ("chosen-layers", "last-layers", "first-layers", "random-layers", "all-layers")
    drawn = {SETS.layers("random-layers", seed) for seed in range(100)}
    assert len(drawn) == 9  # all pairs of five but the chosen one
    for layers in (*drawn, *(SETS.layers(arm, 0) for arm in SETS.arms())):
        assert SETS.rank_of(layers) * sum(SETS.weights[layer] for layer in layers) <= 16 * 20
    assert SETS.rank_of((2, 4)) == 8
    assert "last-layers" not in AdaptedLayers((4, 5), SETS.among, SETS.weights, 16).arms()
    with pytest.raises(TrainError, match="write --set rank=4 or more"):
        AdaptedLayers((1, 4), SETS.among, SETS.weights, rank=3).rank_of(SETS.among)


class PlantedOutcomes:
    """Losses of 40 documents of 100 tokens: what an arm costs more, what a seed adds to it, and noise of documents."""

    def __init__(self, gap: float, seeds: float, documents: float, draw: int) -> None:
        self.gap, self.spread, self.noise, self.chance = gap, seeds, documents, np.random.default_rng(draw)

    def changes(self, first: str, second: str, task: str) -> tuple[np.ndarray, np.ndarray]:
        own = self.gap + self.spread * self.chance.normal()
        return 100 * (own + self.noise * self.chance.normal(size=40)), np.full(40, 100.0)

    def documents(self, task: str) -> int:
        return 40

    def tokens(self, task: str) -> int:
        return 4_000


def contrasts(gap: float, seeds: float, documents: float, draw: int = 0, arms: int = 4) -> list[Score]:
    names = SETS.arms()[1 : arms + 1]
    return list(layer_contrasts(names, PlantedOutcomes(gap, seeds, documents, draw), 3))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gap", "seeds", "verdict"),
    [
        (-0.05, 0.001, "is better than in the last layers"),
        (0.05, 0.001, "is worse than in the last layers"),
        (0.0, 0.0001, "is equal within 0.005 nats to the last layers"),
        (0.0, 0.1, "is not resolvable against the last layers"),
    ],
)
def test_planted_differences_have_their_verdicts(gap: float, seeds: float, verdict: str) -> None:
    text = " ".join(layer_findings(ReportData({}, (), (*SETS.rows(3), *contrasts(gap, seeds, 0.002)))))
    assert text.startswith("LoRA in layers 1 and 4 is ")
    assert verdict in text


@pytest.mark.simulated
def test_arms_that_are_equal_are_told_apart_in_one_study_of_twenty_at_most() -> None:
    """Four arms, Holm: in any of them; 3 seeds whose spread outweighs that of the documents."""
    studies = by_tier(fast=100, nightly=1_000)
    wrong = sum(
        any(row.p_adjusted is not None and row.p_adjusted < 0.05 for row in contrasts(0.0, 0.01, 0.02, draw))
        for draw in range(studies)
    )
    assert wrong <= 0.05 * studies + 3 * np.sqrt(0.05 * 0.95 * studies)


def stored_run(folder: Path, model: Path, texts: Path, verb: str, *options: str) -> Path:
    ended = layerwise(verb, model, "--text", texts, "--tokens", "600", "--run", folder, *options)
    assert ended.code == 0, ended.err
    return folder


@pytest.mark.slow
def test_layers_of_a_run_are_those_that_cost_most(tmp_path: Path) -> None:
    model, texts = save_llama(tmp_path / "model"), save_texts(tmp_path / "texts", count=30, characters=60)
    sweep = stored_run(tmp_path / "sweep", model, texts, "sweep", "--families", "leave_one_out", "--max-length", "24")
    other = stored_run(tmp_path / "other", model, texts, "sweep", "--families", "swap_adjacent", "--max-length", "24")
    diagnosis = stored_run(
        tmp_path / "diagnosis", model, texts, "diagnose", "--parts", "ablation", "--max-length", "24"
    )
    with Run.open(sweep) as run:
        rows = Rows(run.store.scores("effect", metric="delta_nll"))
    costs = {row.plan: row.value for row in rows.where(task=rows.axis("task")[0])}
    ranked = sorted(range(4), key=lambda layer: -costs[str(Plan.of([each for each in range(4) if each != layer]))])
    for folder in (sweep, diagnosis):
        assert chosen_layers(f"{folder}:2", Plan.parse("0-3")) == tuple(sorted(ranked[:2]))
    with pytest.raises(PlanError, match="does not say what leaving out single layers costs"):
        chosen_layers(f"{other}:2", Plan.parse("0-3"))
    with pytest.raises(PlanError, match="write a number from 1 to 3"):
        chosen_layers(f"{sweep}:9", Plan.parse("0-3"))


@pytest.mark.slow
def test_adapters_are_in_the_chosen_layers_which_are_those_that_peft_takes(tmp_path: Path) -> None:
    """Fine-tuning, without a layer left out: no control, and the gain is over the untouched model."""
    model, texts = save_llama(tmp_path / "model"), save_texts(tmp_path / "texts", count=90, characters=60)
    result = library.heal(
        model,
        texts,
        plan="0-3",
        teacher="none",
        method="lora:0,2",
        rank=4,
        learning_rates=(1e-2,),
        steps=2,
        seeds=2,
        evals=1,
        batch_size=4,
        max_length=24,
        run=tmp_path / "run",
        reporter=Silent(),
    )
    layers = [row for row in result.rows if row.measure == "healing_layer"]
    assert {(row.arm, row.value) for row in layers if row.arm in ("chosen-layers", "all-layers")} == {
        ("chosen-layers", 4.0),
        ("all-layers", 2.0),
    }
    assert {row.arm for row in result.rows if row.measure == "healing" and row.metric == "regained"} == {
        "chosen-layers",
        "last-layers",
        "first-layers",
        "random-layers",
        "all-layers",
    }
    weights = [row.value for row in result.rows if row.metric == "learning_weights"]
    assert len(set(weights)) == 1
    names = {name.split(".lora_")[0] for name in load_file(tmp_path / "run" / "adapter" / "adapter_model.safetensors")}
    with Run.open(tmp_path / "run") as run:
        (note,) = (each.text for each in run.store.notes("healing") if "layers_to_transform" in each.text)
    assert note.endswith('layers_to_transform=[0, 2], layers_pattern="layers"')
    suffixes = sorted({name.split(".layers.")[1].partition(".")[2] for name in names})
    config = LoraConfig(target_modules=suffixes, layers_to_transform=[0, 2], layers_pattern="layers")
    theirs = get_peft_model(AutoModelForCausalLM.from_pretrained(model), config)
    assert names == {name.split(".lora_")[0] for name, _ in theirs.named_parameters() if ".lora_" in name}
    with torch.no_grad():
        assert library.load(str(tmp_path / "run" / "model")).depth == 4


def test_a_model_is_no_teacher_of_itself(tmp_path: Path) -> None:
    model, texts = save_llama(tmp_path / "model"), save_texts(tmp_path / "texts")
    assert "with --teacher none" in refused("heal", model, "--plan", "0-3", "--text", texts, "--dry-run")
