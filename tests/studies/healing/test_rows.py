"""Rows and runs of a healing."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from scipy import stats
from transformers import AutoModelForCausalLM, AutoModelForImageClassification, AutoModelForMaskedLM

from cli.command import Ended, layerwise, refused
from cli.conftest import save_llama, save_texts
from cli.picture_models import save_vit
from layerwise.data.text.tokens import Window
from layerwise.measure.contrasts.trainings import LinearEstimate, average_linear
from layerwise.measure.interventions.accuracy import Predictions
from layerwise.measure.interventions.survey import Survey
from layerwise.measure.stats.effects import compute_effects
from layerwise.measure.stats.statistics import StratumLabels, paired_proportions, student_interval, wilson
from layerwise.plan import Plan, families
from layerwise.results.rows import Loss, Score
from layerwise.stack import load
from layerwise.studies.heal import rows as made
from layerwise.studies.heal.benchmarks import Outcomes
from layerwise.studies.heal.rows import benchmark_rows
from layerwise.studies.heal.steps import MAX_DEFAULT_STEPS, choose_settings
from layerwise.studies.heal.variants import Healing, HealingVariant, draw_random_plan, skip_middle
from layerwise.train.heal.options import HealingOptions
from train.learners import tiny_bert


def variants(*names: str) -> tuple[HealingVariant, ...]:
    return tuple(HealingVariant(name, HealingOptions(), name, int(name.partition("-")[2] or 0)) for name in names)


class PlantedLosses:
    def __init__(self, losses: dict[str, float], reach: float | None = None) -> None:
        self.losses, self.reach = losses, reach

    def loss(self, name: str, task: str) -> LinearEstimate:
        return LinearEstimate(self.losses.get(name, 2.0), np.zeros(9))

    def strata(self, task: str) -> StratumLabels:
        return np.zeros(9, dtype=np.intp)

    def difference(self, first: str, second: str, task: str) -> tuple[float, float | None, float | None]:
        value = self.loss(first, task).value - self.loss(second, task).value
        return (value, None, None) if self.reach is None else (value, value - self.reach, value + self.reach)

    def documents(self, task: str) -> int:
        return 9


@pytest.mark.parametrize(("whole", "at"), [(2.0, 1.5), (1.9, 0.0)])
def test_the_crossing_is_relative_to_the_control(whole: float, at: float) -> None:
    healing = Healing(Plan.identity(6), 6, variants("identity", "skip-1", "skip-2"), 2)
    losses = {
        f"{name}/{seed}": loss
        for seed in range(2)
        for name, loss in (("identity", whole), ("skip-1", 1.95), ("skip-2", 2.05))
    }
    rows = {
        (row.metric, row.affected): row.value
        for row in made.window_rows(healing, PlantedLosses(losses))
        if row.against == "identity"
    }
    assert rows["above_original", 2] == pytest.approx(2.05 - whole)
    assert rows["layers", None] == pytest.approx(at)


def test_windows_match_the_middle_windows_of_a_sweep() -> None:
    for depth in range(2, 41):
        swept = {member.affected: member.plan for member in families.painters(depth) if member.strategy == "skip"}
        for count in range(1, depth):
            healed = skip_middle(depth, count)
            assert healed == swept.get(count, healed)
            gone = [layer for layer in range(depth) if layer not in healed.layers()]
            assert gone == list(range(gone[0], gone[0] + count))
            assert 0 <= gone[0] - (depth - 1 - gone[-1]) <= 1


def test_a_random_plan_has_the_same_size_and_differs() -> None:
    plan = Plan.parse("0-1 4-5")
    drawn = {str(draw_random_plan(plan, 6, seed)) for seed in range(20)}
    assert str(plan) not in drawn
    assert len(drawn) > 5
    assert all(len(Plan.parse(text).steps()) == 4 for text in drawn)


LOSSES = {"original": 2.0, "pruned": 3.0, "lora/0": 2.6, "random before/0": 6.0, "random/0": 3.2, "identity/0": 1.9}


def test_every_share_is_of_the_requested_plans_loss_increase() -> None:
    healing = Healing(Plan.parse("0-1 4-5"), 6, variants("lora", "identity", "random"), 1)
    rows = made.regained(healing, PlantedLosses(LOSSES, reach=0.1), "all")  # type: ignore[arg-type]
    values = {(row.variant, row.metric): row.value for row in rows}
    assert values["pruned", "lost"] == pytest.approx(1.0)
    for variant, share in {"lora": 0.4, "random": -0.2}.items():
        assert values[variant, "regained"] == pytest.approx(share)
        assert values[variant, "regained_share"] == pytest.approx(share)
        assert values[variant, "net_share"] == pytest.approx(share - 0.1)


class Text:
    """Windows of the documents of two tasks."""

    def __init__(self, documents: int, windows: int = 2) -> None:
        self.windows = [
            Window(f"d{number}", "ab"[number % 2], index, tuple(range(12)), 1, 12)
            for number in range(documents)
            for index in range(windows)
        ]

    def __len__(self) -> int:
        return len(self.windows)


def outcomes(models: dict[str, np.ndarray], documents: int = 40) -> Outcomes:
    text = Text(documents)
    surveys = {}
    for name, nll in models.items():
        hits = (nll % 1 * 12).round()
        surveys[name] = Survey(4, {"test": Predictions(hits, None, nll, np.full(len(text), 11.0))})
    return Outcomes(SimpleNamespace(test=text), surveys)  # type: ignore[arg-type]


DRAW = np.random.default_rng(5)
BASE = DRAW.gamma(9.0, 1.0, 80) + np.repeat(np.arange(40) % 2, 2) * 9
MODELS = {"original": BASE, "pruned": BASE + DRAW.gamma(4.0, 1.0, 80)}
MODELS |= {f"lora/{seed}": BASE + DRAW.gamma(2.0, 1.0, 80) + seed for seed in range(3)}


def losses(name: str, documents: int = 40) -> list[Loss]:
    windows = Text(documents).windows
    pairs = zip(windows, MODELS[name], strict=True)
    return [Loss(name, each.task, each.document, each.index, float(nll), 11, 0) for each, nll in pairs]


@pytest.mark.parametrize("task", ["all", "a", "b"])
def test_the_loss_increase_has_the_interval_of_a_sweep(task: str) -> None:
    (row,) = (
        row
        for row in compute_effects([*losses("original"), *losses("pruned")], "original", seed=0)
        if (row.metric, row.task) == ("delta_nll", task)
    )
    assert outcomes(MODELS).difference("pruned", "original", task) == (row.value, row.low, row.high)


def test_intervals_cover_seeds_and_documents_of_every_task() -> None:
    found = outcomes(MODELS)
    gaps = [found.loss(f"lora/{seed}", "all") - found.loss("original", "all") for seed in range(3)]
    mean = np.mean([MODELS[f"lora/{seed}"] for seed in range(3)], axis=0) - BASE
    by_task = [mean.reshape(40, 2).sum(axis=1)[task::2] for task in range(2)]
    sides = np.concatenate(by_task)
    alone = student_interval(sides, np.full(40, 22.0), strata=np.repeat([0, 1], 20))
    estimate = average_linear(gaps, found.strata("all"))
    of_seeds = stats.t(2).ppf(0.975) * stats.sem([each.value for each in gaps])
    assert estimate.half == pytest.approx(np.hypot(of_seeds, (alone.high - alone.low)[0] / 2))
    assert average_linear(gaps[:1], found.strata("all")).terms[0].variance > 0
    assert len(average_linear(gaps[:1], found.strata("all")).terms) == 1
    # The p-value is that of the interval: at its own level the interval ends at zero.
    level = 1 - estimate.p
    reach = np.hypot(
        of_seeds * stats.t(2).ppf(0.5 + level / 2) / stats.t(2).ppf(0.975),
        alone.error[0] * stats.t(alone.freedom[0]).ppf(0.5 + level / 2),
    )
    assert reach == pytest.approx(estimate.value)


def test_influences_of_a_share_match_leaving_a_document_out() -> None:
    found = outcomes(MODELS)
    start, whole, healed = (found.loss(name, "a") for name in ("pruned", "original", "lora/0"))
    share = (start - healed) / (start - whole)
    own = [index for index, window in enumerate(Text(40).windows) if window.task == "a"]
    kept = [index for index in own if Text(40).windows[index].document != "d0"]
    of = {name: MODELS[name][kept].mean() for name in ("pruned", "original", "lora/0")}
    left = (of["pruned"] - of["lora/0"]) / (of["pruned"] - of["original"])
    assert share.value - left == pytest.approx(share.influences[0], rel=0.15)
    assert share.influences.sum() == pytest.approx(0.0, abs=1e-12)


def test_few_documents_use_windows_as_units_and_fewer_have_no_interval() -> None:
    for documents, units in ((8, 8), (7, 14), (3, 6)):
        models = {name: nll[: 2 * documents] for name, nll in MODELS.items()}
        found = outcomes(models, documents)
        gap = found.loss("lora/0", "all") - found.loss("original", "all")
        assert gap.influences.size == units
        assert bool(average_linear([gap], found.strata("all")).terms) == (units >= 8)


QUESTIONS = 40
VARIANTS = variants("lora", "identity", "random", "skip-1")


def answered(right: int, first: int = 0) -> Survey:
    hits = np.zeros(QUESTIONS)
    hits[first : first + right] = 1.0
    return Survey(6, {"quiz": Predictions(hits, None, np.zeros_like(hits), np.ones_like(hits))})


def rows_of(seeds: int = 2, **right: Survey) -> list[Score]:
    surveys = {
        "original": answered(30),
        "pruned": answered(10),
        "skip-1 before": answered(20),
        **{f"random before/{seed}": answered(5) for seed in range(seeds)},
        **{f"{variant.name}/{seed}": answered(25 + seed) for variant in VARIANTS for seed in range(seeds)},
        **{name.replace("_", "/"): survey for name, survey in right.items()},
    }
    return list(benchmark_rows(Healing(Plan.parse("0-1 4-5"), 6, VARIANTS, seeds), surveys, {"quiz": 0.25}))


def one(rows: Sequence[Score], **columns: object) -> Score:
    (row,) = (
        row for row in rows if all(getattr(row, name) == value for name, value in {"seed": None, **columns}.items())
    )
    return row


def test_benchmark_accuracy_and_differences_are_paired_by_question() -> None:
    rows = rows_of()
    assert one(rows, against="chance").value == 0.25
    assert one(rows, metric="accuracy", variant="original").value == pytest.approx(30 / 40)
    pruned = one(rows, metric="difference", variant="pruned", against="original")
    expected = paired_proportions(0, 20, QUESTIONS)
    assert (pruned.value, pruned.low, pruned.high) == pytest.approx((-0.5, float(expected.low), float(expected.high)))
    assert one(rows, metric="accuracy", variant="lora", seed=1).low == pytest.approx(float(wilson(26, QUESTIONS).low))
    assert one(rows, metric="accuracy", variant="lora").value == pytest.approx(25.5 / 40)
    assert one(rows, metric="difference", variant="lora", against="original").value == pytest.approx(-4.5 / 40)


def test_the_control_is_paired_by_seed() -> None:
    rows = rows_of(identity_0=answered(25), identity_1=answered(26, first=2))
    compared = one(rows, metric="difference", variant="lora", against="identity")
    assert compared.value == pytest.approx(0.0)
    swapped = rows_of(identity_0=answered(30), identity_1=answered(26), lora_0=answered(20), lora_1=answered(26))
    row = one(swapped, metric="difference", variant="lora", against="identity")
    assert row.value == pytest.approx(-5 / 40)
    assert not [row for row in rows if row.variant == "identity" and row.against == "identity"]


def test_windows_are_evaluated_before_and_after_healing() -> None:
    rows = rows_of()
    before = one(rows, metric="accuracy", variant="skip-1", condition="before")
    after = one(rows, metric="accuracy", variant="skip-1", condition="healed")
    assert (before.affected, after.affected) == (1, 1)
    assert before.value == pytest.approx(0.5)
    assert one(rows, metric="difference", variant="skip-1", condition="before").value == pytest.approx(-0.25)


SHORT = ("--steps", "2", "--seeds", "2", "--evals", "1", "--batch-size", "4", "--max-length", "24")
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
def test_the_checkpoint_matches_the_base_with_adapters_under_the_plan(
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
def test_vision_models_are_healed(tmp_path: Path) -> None:
    vit = save_vit(tmp_path / "vit")
    short = ("--steps", "2", "--batch-size", "10", "--seeds", "1", "--hidden", "cosine")
    heal(vit, "0 2", tmp_path / "run", "--images", "digits", "--limit", "20", *short)
    assert AutoModelForImageClassification.from_pretrained(tmp_path / "run" / "model").config.num_hidden_layers == 2


@pytest.mark.slow
def test_masked_language_models_are_healed(tmp_path: Path) -> None:
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
def test_a_plan_with_groups_is_healed_without_a_checkpoint(inputs: tuple[Path, Path], tmp_path: Path) -> None:
    ended = heal(inputs[0], "0 (1|2) 3", tmp_path / "run", "--text", inputs[1], *SHORT, "--controls", "")
    assert "was not written" in ended.err
    assert "a checkpoint runs its layers in sequence" in ended.err
    assert not (tmp_path / "run" / "model").exists()
    assert (tmp_path / "run" / "adapter" / "adapter_config.json").is_file()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--plan", "0 99x"), "cannot"),
        (("--plan", "0 Q4_0:1"), "cannot heal a model under a plan with Q4_0:1"),
        (("--plan", "a:0 b:1"), "must use layers of one model only"),
        (("--plan", "0-1", "--compare", "lora-label"), "did you mean lora-labels"),
        (("--plan", "0-1", "--controls", "identiy"), "did you mean identity"),
        (("--plan", "0-1", "--teacher", "none", "--hidden", "mse"), "--hidden requires --teacher self"),
        (("--plan", "0-1", "--method", "tail", "--rank", "4"), "--rank requires --method lora"),
        (("--plan", "0-1", "--steps", "3", "--epochs", "1"), "Pass one of them"),
    ],
)
def test_invalid_options_are_rejected_before_a_model_is_loaded(options: tuple[str, ...], words: str) -> None:
    message = refused("heal", "no/model/there", *options)
    assert words in message or "99x" in message


@pytest.mark.parametrize(
    ("options", "count", "steps"),
    [({}, 320, 20), ({}, 6_400, MAX_DEFAULT_STEPS), ({"epochs": 1.0}, 6_400, 400), ({"steps": 7}, 6_400, 7)],
)
def test_training_on_a_long_text_has_a_default_budget(options: dict[str, Any], count: int, steps: int) -> None:
    given = {"steps": None, "epochs": None, **options}
    settings = choose_settings("org/name", count, {}, **given, is_bounded="epochs" not in options)
    assert settings.steps(count) == steps
