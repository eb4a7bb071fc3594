"""A study of layer weights: its rows and its runs."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice, pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from cli.command import layerwise, refused
from data.glue_files import write
from layerwise.data.suites import generated_pairs
from layerwise.data.suites.generated_msgs import Sizes, mixed_signals
from layerwise.data.text.documents import Document
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.measure.cost.overhead import Overhead
from layerwise.measure.gradients.attribution import FeatureShares
from layerwise.results import Run
from layerwise.results.manifest import Manifest
from layerwise.results.rows import Score
from layerwise.runner import finetuned_tasks
from layerwise.runner.finetuned_tasks import FineTunedModel
from layerwise.studies.train_elc import study_arms as arms
from layerwise.studies.train_elc import study_arms as study
from layerwise.studies.train_elc import study_tunings as tunings
from layerwise.studies.train_elc.options import LayerWeightsStudy
from layerwise.studies.train_elc.study_arms import bias_arms, share_arm
from layerwise.studies.train_elc.study_rows import (
    bias_rows,
    cost_rows,
    difference_rows,
    share_rows,
    study_tuning_convergence,
)
from layerwise.studies.train_elc.study_tunings import (
    ATTRIBUTION,
    REWIRED,
    attribution_rows,
    marked,
    shuffled,
    with_arms,
)
from layerwise.train.fine_tuning import FineTuningConfig, FineTuningResult
from layerwise.train.pretrain.recipe import new_model, pretraining_recipe
from row_names import named
from studies.outlines import outline_of
from tier import by_tier


def models(measure: str, task: str, metric: str, **arms: list[float]) -> list[Score]:
    names = {arm: arm.replace("_", "-") for arm in arms}
    rows = [
        Score(measure, metric, value, task=task, arm=names[arm], seed=seed)
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    ]
    return rows + [Score(measure, metric, 99.0, task=task, arm=names[arm]) for arm in arms]


LTG = [3.0, 3.4, 3.2, 3.1]
NEARLY = [0.001, -0.001, 0.001, -0.001]
ELC, IN_TIME = ([x + gap + more for x, more in zip(LTG, NEARLY, strict=True)] for gap in (-0.1, 0.2))
LOSSES = models("masked_lm", "all", "nll", ltg=LTG, elc=ELC, elc_seconds=IN_TIME)


def found(rows: list[Score]) -> dict[tuple[str, str, str | None], Score]:
    return {(named(row), row.task, row.condition): row for row in difference_rows(rows)}


def test_differences_are_paired_by_seed_and_told_on_their_terms() -> None:
    rows = found(LOSSES)
    assert {key: round(row.value, 6) for key, row in rows.items()} == {
        ("elc - ltg", "masked_lm", "tokens"): -0.1,
        ("elc - ltg", "masked_lm", "seconds"): 0.2,
    }
    assert all(row.p is not None and row.p < 1e-5 for row in rows.values())


def test_p_are_corrected_over_the_arms_of_a_question() -> None:
    rng = np.random.default_rng(0)
    noisy = {arm: list(3.0 + rng.normal(0, 0.1, 4)) for arm in ("ltg", "elc", "zero", "denseformer")}
    rows = difference_rows(models("masked_lm", "all", "nll", **noisy))
    assert len(rows) == 3
    least = min(rows, key=lambda row: row.p or 1.0)
    assert least.p_adjusted == pytest.approx(min(1.0, 3 * (least.p or 1.0)))
    assert all((row.p_adjusted or 0.0) >= (row.p or 0.0) for row in rows)
    assert all(row.mde is not None and row.mde > 0 for row in rows)


def test_tasks_of_a_kind_are_averaged_within_a_model_and_fine_tunings_left_alone() -> None:
    rows = models("msgs-ours", "control main_verb", "mcc", ltg=[0.2, 0.4], elc_kept=[0.4, 0.6])
    rows += models("msgs-ours", "control length", "mcc", ltg=[0.0, 0.0], elc_kept=[1.0, 1.0])
    of = {"task": "control main_verb", "arm": "ltg", "seed": 0}
    rows += [Score("msgs-ours", "mcc", 7.0, other=0, **of), Score("msgs-ours", "x", 7.0, **of)]
    assert {key: round(row.value, 6) for key, row in found(rows).items()} == {
        ("elc-kept - ltg", "control tasks", "tokens"): round(0.7 - 0.1, 6)
    }


def test_tasks_of_glue_count_alike_and_each_by_its_first_metric() -> None:
    rows = models("glue", "cola", "mcc", ltg=[0.1, 0.2], ltg_rewired=[0.3, 0.4])
    rows += models("glue", "rte", "accuracy", ltg=[0.5, 0.5], ltg_rewired=[0.5, 0.5])
    rows += models("glue", "cola", "accuracy", ltg=[7.0, 7.0], ltg_rewired=[9.0, 9.0])
    assert {key: round(row.value, 6) for key, row in found(rows).items()} == {
        ("ltg-rewired - ltg", "glue", "tokens"): 0.1
    }


def test_the_curves_of_fine_tuning_are_compared_by_arm_and_seed() -> None:
    rows = []
    for arm, slower in (("ltg", 1), ("elc-kept", 2), ("elc-seconds", 3)):
        for seed in range(2):
            of = {"task": "control length", "arm": arm, "seed": seed, "other": 0}
            points = {slower: 0.5, 10 * slower: 0.7}
            rows += [Score("learning_curve", "mcc", x, amount=float(n), **of) for n, x in points.items()]
            rows.append(Score("learning_curve", "step_seconds", 0.5, **of))
    ratios = [row for row in study_tuning_convergence(rows) if row.metric == "ratio"]
    compared = {(named(row), row.task, row.condition): row for row in ratios}
    assert set(compared) == {("elc-kept - ltg", "control length", cost) for cost in ("steps", "seconds")}
    assert all(row.value == pytest.approx(2) for row in compared.values())


def test_learned_weights_are_judged_against_the_same_unlearned() -> None:
    rows = found(
        models("masked_lm", "all", "nll", ltg=LTG, elc=[x - 0.1 for x in LTG], elc_frozen=[x + 0.2 for x in LTG])
    )
    assert {name: round(row.value, 6) for (name, *_), row in rows.items()} == {
        "elc - ltg": -0.1,
        "elc-frozen - ltg": 0.2,
        "elc - elc-frozen": -0.3,
    }
    own = rows["elc - elc-frozen", "masked_lm", "tokens"]
    assert own.p_adjusted == own.p, "it is a question of its own"


def test_costs_are_ratios_within_rounds() -> None:
    slow = np.array([1.0, 4.0, 1.0, 9.0, 2.0, 1.0])
    rows = cost_rows({"ltg": Overhead(slow, slow, 100), "elc": Overhead(1.25 * slow, 1.5 * slow, 110)})
    assert {row.task: row.value for row in rows} == pytest.approx(
        {"training step": 1.25, "forward pass": 1.5, "memory of a step": 1.1}
    )
    assert {(named(row), row.metric) for row in rows} == {("elc - ltg", "ratio")}


BIASES = bias_arms((0, 0.5, 1, 2, 4))


def biased(effect: dict[float, float], seeds: int = 3, noise: float = 0.004, run: int = 0) -> list[Score]:
    chance = np.random.default_rng(run)
    shared = 3 + 0.05 * chance.standard_normal(seeds)
    return [
        Score("masked_lm", "nll", shared[seed] + effect[bias] + noise * chance.normal(), arm=arm, seed=seed)
        for arm, bias in BIASES.items()
        for seed in range(seeds)
    ]


def on_grid(rows: list[Score]) -> dict[tuple[str, str], Score]:
    return {(named(row), row.metric): row for row in bias_rows(rows, BIASES)}


def test_every_arm_has_its_bias_and_its_mean() -> None:
    rows = on_grid(biased({bias: 0.1 * bias for bias in BIASES.values()}, noise=0.0))
    assert [rows[arm, "value"].amount for arm in BIASES] == [0, 0.5, 1, 2, 4]
    assert rows["elc-bias-4", "value"].value - rows["zero", "value"].value == pytest.approx(0.4)
    assert rows["all", "slope"].value == pytest.approx(0.1)


@pytest.mark.simulated
def test_a_slope_a_peak_and_nothing() -> None:
    runs = by_tier(fast=60, nightly=200)
    truths = {
        "slope": {bias: 0.01 * bias for bias in BIASES.values()},
        "peak": {bias: -0.03 * (bias == 1) for bias in BIASES.values()},
        "nothing": dict.fromkeys(BIASES.values(), 0.0),
    }
    share = {}
    for truth, effect in truths.items():
        grids = [on_grid(biased(effect, run=run)) for run in range(runs)]
        for metric in ("slope", "differ"):
            share[truth, metric] = sum((each["all", metric].p_adjusted or 1) < 0.05 for each in grids) / runs
    assert share["slope", "slope"] >= 0.95
    assert share["peak", "differ"] >= 0.95
    assert max(share["nothing", "slope"], share["nothing", "differ"]) <= 0.09


def on_shares(gain: dict[float, float]) -> list[Score]:
    rows = []
    for share, gap in gain.items():
        for seed, own in enumerate((3.0, 3.1, 3.3)):
            value = own - share
            rows.append(Score("masked_lm", "nll", value, arm=share_arm("ltg", share), seed=seed))
            timed = value - gap - 0.001 * seed
            rows.append(Score("masked_lm", "nll", timed, arm=share_arm("elc", share), seed=seed))
    return rows


def test_gains_and_what_a_halving_adds_to_them() -> None:
    rows = on_shares({0.25: 0.3, 0.5: 0.2, 1.0: 0.1})
    found = {(named(row), row.amount): row for row in share_rows(rows)}
    assert found["ltg", 0.5].value == pytest.approx(3.4 / 3 * 1 + 2.0 - 0.5, abs=0.01)
    gaps = {share: found["elc - ltg", share] for share in (0.25, 0.5, 1.0)}
    assert {share: round(row.value, 3) for share, row in gaps.items()} == {0.25: -0.301, 0.5: -0.201, 1.0: -0.101}
    assert all((row.p_adjusted or 0) >= (row.p or 1) for row in gaps.values())
    assert found["elc - ltg", None].value == pytest.approx(-0.1)


TOKENIZER = train_wordpiece(["The cat saw the dog."] * 10, vocabulary=270)
DOCUMENTS = tuple(Document(f"{n}", " ".join(["word"] * Random(n).randint(5, 60))) for n in range(80))


def words(documents: tuple[Document, ...]) -> int:
    return sum(len(each.text.split()) for each in documents)


def test_a_larger_share_holds_the_smaller_ones_and_none_is_far_off() -> None:
    shares = [study.part_of(DOCUMENTS, share, 0) for share in (0.125, 0.25, 0.5, 1.0)]
    assert all(set(small) < set(large) for small, large in pairwise(shares))
    assert shares[-1] == DOCUMENTS
    for share, documents in zip((0.125, 0.25, 0.5), shares, strict=False):
        assert share * words(DOCUMENTS) <= words(documents) < share * words(DOCUMENTS) + 60
        assert list(documents) == [each for each in DOCUMENTS if each in documents], "they stay in their order"


def test_arms_differ_from_their_kind_in_one_thing() -> None:
    arms = {each.arm: each for each in study.arms("tiny", steps=40)}
    assert list(arms) == ["ltg", "elc", "zero", "elc-identity", "elc-frozen", "denseformer"]

    def differences(one: str, other: str) -> set[str]:
        left, right = asdict(arms[one]), asdict(arms[other])
        return {name for name in left if left[name] != right[name]}

    assert differences("elc", "ltg") == {"arm", "variant"} == differences("denseformer", "ltg")
    assert differences("elc-identity", "elc") == {"arm", "initialisation"}
    assert differences("elc-frozen", "elc") == {"arm", "frozen_layer_weights"}


def test_equal_seconds_are_fewer_steps_of_a_slower_arm() -> None:
    later = study.at_equal_seconds(pretraining_recipe("tiny", "elc", steps=100), 1.25)
    assert (later.arm, later.steps) == ("elc-seconds", 80)


def test_held_weights_are_all_that_is_held() -> None:
    model = new_model(pretraining_recipe("tiny", "elc", arm="elc-frozen", frozen_layer_weights=True), TOKENIZER)
    held = {name for name, each in model.named_parameters() if not each.requires_grad}
    assert held == {name for name, _ in model.named_parameters() if name.endswith(".scalars")} != set()


def test_a_grid_has_the_arms_of_the_study_under_their_names() -> None:
    assert list(study.bias_arms((0, 0.5, 1, 2, 4))) == ["zero", "elc-bias-0.5", "elc", "elc-bias-2", "elc-bias-4"]
    recipes = {each.arm: each for each in study.arms("tiny", (0, 0.5, 1, 2, 4), steps=4)}
    assert list(recipes)[-3:] == ["elc-bias-0.5", "elc-bias-2", "elc-bias-4"]
    assert (recipes["elc-bias-2"].variant, recipes["elc-bias-2"].initialisation) == ("elc", "2")


(TASK,) = mixed_signals(["ambiguous main_verb_relative_position"], Sizes(20, 10, 20))
SHARES = FeatureShares((0.5, 0.3), (0.1, 0.3), (0.2, 0.2), (0.1, 0.1), 0.004)


@pytest.fixture
def tuned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []

    def taught(location: Path, task: Any, *_: Any, inspect_model: Any, **__: Any) -> FineTuningResult:
        found.append(task.name)
        inspect_model(None, None)
        labels = tuple(row.label for row in task.test)
        return FineTuningResult(labels, labels, 0.5, 1e-3, 1, 0.1)

    monkeypatch.setattr(finetuned_tasks, "fine_tune", taught)
    monkeypatch.setattr(tunings, "feature_shares", lambda *_: SHARES)
    return found


def test_rows_of_models_and_arms_and_nothing_is_taught_twice(tmp_path: Path, tuned: list[str]) -> None:
    manifest = Manifest("models", None, "w1", "float32", "cpu", "texts", "c1", 3, 90, 64, ("elc",), ("elc",), 7)
    models = [FineTunedModel("elc", seed, tmp_path / name) for seed, name in enumerate("ab")]
    with Run.create(tmp_path / "run", manifest) as run:
        rows = with_arms(attribution_rows(models, TASK, FineTuningConfig(), run.folder, device="cpu"))
        assert tuned == [TASK.name, f"{TASK.name} shuffled"] * 2
        tuned.clear()
        assert with_arms(attribution_rows(models, TASK, FineTuningConfig(), run.folder, device="cpu")) == rows
        assert tuned == []
        for kept in (run.folder / ATTRIBUTION).rglob("*.json"):
            kept.unlink()
        assert with_arms(attribution_rows(models, TASK, FineTuningConfig(), run.folder, device="cpu")) == rows
    values = {(row.arm, row.seed, row.metric, row.against): row.value for row in rows}
    for seed in (0, None):
        assert values["elc", seed, "linguistic", None] == pytest.approx(0.4)
        assert values["elc", seed, "surface", "tokens"] == pytest.approx(0.1)
        assert values["elc", seed, "preference", None] == pytest.approx(0.4 - 0.2 - 0.2 + 0.1)
        assert values["elc", seed, "preference", "shuffled"] == values["elc", seed, "preference", None]
        assert values["elc", seed, "gap", None] == 0.004
    assert {row.task for row in rows} == {TASK.name}


def test_shuffled_labels_are_dealt_out_anew_and_the_test_stays() -> None:
    other = shuffled(TASK)
    assert other.test == TASK.test
    assert other.train != TASK.train
    assert [row.text for row in other.train] == [row.text for row in TASK.train]
    assert Counter(row.label for row in other.train) == Counter(row.label for row in TASK.train)
    assert marked(other, 3) == marked(TASK, 3)
    assert len(marked(TASK, 3)[0].surface) == 2


WORDS = ("The cat saw the dog.", "A dog ran to the old house.", "It did not see him!", "Who ran away then?")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "words.txt"
    documents = ["\n".join(WORDS[(n + k) % 4] for k in range(30 + n)) for n in range(30)]
    path.write_text("\n<|endoftext|>\n".join(documents) + "\n")
    return path


@pytest.fixture(scope="module")
def few_examples() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arms, "PAIRS_EACH", 1)
        patch.setattr(arms, "SIZES", Sizes(16, 8, 8))
        patch.setattr(generated_pairs, "PARADIGMS", dict(islice(generated_pairs.PARADIGMS.items(), 3)))
        yield


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shares", "1/8,2"), "above 0 and up to 1, as in 1/8,1/4,1/2,1; found '2'"),
        (("--shares", "half"), "found 'half'"),
        (("--shares", "1/2,0.5"), "--shares names 0.5 twice"),
        (("--bias", "1,1"), "--bias names 1 twice"),
        (("--set", "glue_tasks=rte"), "it is read with --glue"),
    ],
)
def test_shares_and_biases_that_cannot_be_are_refused(options: tuple[str, str], message: str) -> None:
    assert message in refused("train", "elc-study", *options)


@pytest.mark.nightly
def test_every_question_has_its_rows(texts: Path, tmp_path: Path, few_examples: None) -> None:
    folder = tmp_path / "run"
    command = ("train", "elc-study", "--text", texts, "--steps", "2", "--batch-size", "8", "--seeds", "2")
    write(folder.parent / "glue", "rte", train=16, valid=8)
    glue = ("--glue", folder.parent / "glue", "--set", "glue_epochs=1", "--set", "tuning_evals=2")
    more = ("--bias", "0,1,2", "--shares", "1/2,1", *glue)
    ended = layerwise(*command, *more, "--device", "cpu", "--run", folder)
    assert ended.code == 0, ended.err
    with Run.open(folder) as run:
        rows = run.store.scores("study")
        agreement = run.store.scores("seed_agreement")
        uniformity = {named(row) for row in run.store.scores("uniformity")}
        convergence = {(named(row), row.condition) for row in run.store.scores("convergence", metric="ratio")}
        biases = {row.arm: row.amount for row in run.store.scores("initial_bias", metric="value")}
        shares = {(named(row), row.amount) for row in run.store.scores("data_share", task="masked_lm")}
        tuned = {
            (named(row), row.task, row.condition) for row in run.store.scores("tuning_convergence", metric="ratio")
        }
        on_glue = {row.arm for row in run.store.scores("glue", metric="accuracy")}
        mixed = {(row.arm, row.task) for row in run.store.scores("msgs-ours", metric="mcc")}
    answered = {(named(row), " ".join(filter(None, (row.task, row.condition)))) for row in rows}
    named = ("elc", "zero", "elc-identity", "elc-frozen", "denseformer")
    others = (*named, "elc-bias-2")
    assert uniformity == set(others) - {"denseformer"}
    assert convergence == {(f"{arm} - ltg", cost) for arm in others for cost in ("steps", "seconds")}
    assert biases == {"zero": 0, "elc": 1, "elc-bias-2": 2}
    names = ("ltg", "elc", "elc - ltg")
    assert {(name, share) for name in names for share in (0.5, 1.0)} <= shares
    asked = {"ltg", "elc-seconds", "ltg-rewired", "elc-kept", *others}
    assert {(arm, task) for arm in asked for task in arms.TASKS} <= mixed, "no arm has an empty cell"
    assert asked <= on_glue
    assert {name for name, task, cost in tuned if (task, cost) == ("rte", "steps")} == {
        f"{arm} - ltg" for arm in asked - {"ltg", "elc-seconds"}
    }
    assert ("elc-kept - ltg", "all", "steps") in tuned
    for task in ("training step", "forward pass", "memory of a step"):
        assert {name for name, of in answered if of == task} == {f"{arm} - ltg" for arm in named}
    for task in ("masked_lm tokens", "pairs tokens"):
        assert {name for name, of in answered if of == task} == {
            "elc - elc-frozen",
            *(f"{arm} - ltg" for arm in others),
        }
    for task in ("control tasks tokens", "linguistic generalisation tokens", "glue tokens"):
        assert {name for name, of in answered if of == task} == {
            "elc - elc-kept",
            "elc - elc-frozen",
            *(f"{arm} - ltg" for arm in (*others, "ltg-rewired", "elc-kept")),
        }
    assert {("elc - ltg", "masked_lm seconds"), ("elc - ltg", "pairs seconds")} <= answered
    assert {named(row) for row in agreement} == {"elc", "zero", "elc-identity", "denseformer", "elc-bias-2"}
    assert "elc against ltg" in ended.out or "elc worth it against ltg" in ended.out


def test_overwrite_discards_the_models_that_were_made_from_others(texts: Path, tmp_path: Path) -> None:
    config = LayerWeightsStudy(text=texts, steps=2, batch_size=8, device="cpu")
    outline = outline_of(config)
    for folder in (tmp_path / REWIRED / "ltg-0", tmp_path / "ltg" / "seed-0"):
        folder.mkdir(parents=True)
    outline.discard(tmp_path)
    assert not list(tmp_path.glob("*/*"))
