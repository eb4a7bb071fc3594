"""Variants of a pretraining: their recipes and texts, and the rows that compare them."""

from collections import Counter
from dataclasses import asdict
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from cli.command import layerwise
from data.glue_files import write
from layerwise.data.suites import generated
from layerwise.data.suites.generated import generate_mixed_signals
from layerwise.data.text.documents import Document
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.measure.contrasts.variants import contrast_biases, contrast_shares, contrast_variants
from layerwise.measure.gradients import attribution as gradients
from layerwise.measure.gradients.attribution import FeatureShares
from layerwise.results import Run
from layerwise.results.rows import Score
from layerwise.results.training_record import LogEntry, TrainingRecord
from layerwise.runner.training_runs import make_training_rows
from layerwise.studies.evaluate import attribution
from layerwise.studies.evaluate.attribution import add_variant_means, mark_words, model_rows, shuffle_labels
from layerwise.studies.train_elc import evaluation
from layerwise.studies.train_elc.trainings import draw_share, make_recipe
from layerwise.train.cost.convergence import fine_tuning_convergence, pretraining_convergence
from layerwise.train.pretrain.recipe import new_model
from row_names import named
from tier import by_tier


def models(measure: str, task: str, metric: str, **variants: list[float]) -> list[Score]:
    names = {variant: variant.replace("_", "-") for variant in variants}
    rows = [
        Score(measure, metric, value, task=task, variant=names[variant], seed=seed)
        for variant, values in variants.items()
        for seed, value in enumerate(values)
    ]
    return rows + [Score(measure, metric, 99.0, task=task, variant=names[variant]) for variant in variants]


LTG = [3.0, 3.4, 3.2, 3.1]


def found(rows: list[Score]) -> dict[tuple[str, str], Score]:
    return {(named(row), row.task): row for row in contrast_variants(rows)}


def test_differences_are_paired_by_seed() -> None:
    nearly = [0.001, -0.001, 0.001, -0.001]
    elc = [x - 0.1 + more for x, more in zip(LTG, nearly, strict=True)]
    rows = found(models("masked_lm", "all", "nll", ltg=LTG, elc=elc, elc_frozen=[x + 0.2 for x in LTG]))
    assert {name: round(row.value, 6) for (name, _), row in rows.items()} == {
        "elc - ltg": -0.1,
        "elc-frozen - ltg": 0.2,
        "elc - elc-frozen": -0.3,
    }
    assert rows["elc - ltg", "masked_lm"].p < 1e-5
    own = rows["elc - elc-frozen", "masked_lm"]
    assert own.p_adjusted == own.p
    assert not found(models("masked_lm", "all", "nll", ltg=LTG[:1], elc=elc[:1])), "one seed decides nothing"


def test_p_values_are_corrected_over_variants() -> None:
    rng = np.random.default_rng(0)
    noisy = {variant: list(3.0 + rng.normal(0, 0.1, 4)) for variant in ("ltg", "elc", "zero", "denseformer")}
    rows = contrast_variants(models("masked_lm", "all", "nll", **noisy))
    least = min(rows, key=lambda row: row.p or 1.0)
    assert least.p_adjusted == pytest.approx(min(1.0, 3 * (least.p or 1.0)))
    assert all(row.mde is not None and row.mde > 0 for row in rows)


def test_tasks_of_a_suite_are_averaged_by_their_first_metric() -> None:
    rows = models("msgs-ours", "control main_verb", "mcc", ltg=[0.2, 0.4], elc_kept=[0.4, 0.6])
    rows += models("msgs-ours", "control length", "mcc", ltg=[0.0, 0.0], elc_kept=[1.0, 1.0])
    of = {"task": "control main_verb", "variant": "ltg", "seed": 0}
    rows += [Score("msgs-ours", "mcc", 7.0, tuning_seed=0, **of), Score("msgs-ours", "x", 7.0, **of)]
    rows += models("glue", "cola", "mcc", ltg=[0.1, 0.2], ltg_rewired=[0.3, 0.4])
    rows += models("glue", "rte", "accuracy", ltg=[0.5, 0.5], ltg_rewired=[0.5, 0.5])
    rows += models("glue", "cola", "accuracy", ltg=[7.0, 7.0], ltg_rewired=[9.0, 9.0])
    assert {key: round(row.value, 6) for key, row in found(rows).items()} == {
        ("elc-kept - ltg", "control tasks"): 0.6,
        ("ltg-rewired - ltg", "glue"): 0.1,
    }


def test_fine_tuning_curves_are_compared_by_variant_and_seed() -> None:
    rows = []
    for variant, slower in (("ltg", 1), ("elc-kept", 2)):
        for seed in range(2):
            of = {"task": "control length", "variant": variant, "seed": seed, "tuning_seed": 0}
            points = {slower: 0.5, 10 * slower: 0.7}
            rows += [Score("learning_curve", "mcc", x, step=n, **of) for n, x in points.items()]
            rows.append(Score("learning_curve", "step_seconds", 0.5, **of))
    ratios = [row for row in fine_tuning_convergence(rows) if row.metric == "ratio"]
    assert {(named(row), row.unit) for row in ratios} == {("elc-kept - ltg", cost) for cost in ("steps", "seconds")}
    assert all(row.value == pytest.approx(2) for row in ratios)


def test_logged_losses_are_compared_by_variant_and_seed() -> None:
    records = {
        (variant, seed): TrainingRecord(
            variant, seed, "", "", "", {}, 100, 1.0, 1, 9.0, 100, history, {"step_seconds": 0.5}
        )
        for variant, slower in (("ltg", 1), ("elc", 2))
        for seed in range(2)
        for history in [tuple(LogEntry(slower * n, "validation", loss) for n, loss in ((5, 6.0), (50, 5.0)))]
    }
    ratios = [row for row in pretraining_convergence(make_training_rows(records)) if row.metric == "ratio"]
    assert {(named(row), row.unit) for row in ratios} == {("elc - ltg", cost) for cost in ("steps", "seconds")}
    assert all(row.value == pytest.approx(2) for row in ratios)


BIASES = {"zero": 0.0, "elc-bias-0.5": 0.5, "elc": 1.0, "elc-bias-2": 2.0, "elc-bias-4": 4.0}


def slope_of(effect: float, run: int) -> Score:
    chance = np.random.default_rng(run)
    shared = 3 + 0.05 * chance.standard_normal(3)
    rows = [
        Score("masked_lm", "nll", shared[seed] + effect * bias + 0.004 * chance.normal(), variant=variant, seed=seed)
        for variant, bias in reversed(BIASES.items())
        for seed in range(3)
    ]
    (slope,) = contrast_biases(rows)
    return slope


@pytest.mark.simulated
def test_a_planted_slope_over_biases_is_recovered() -> None:
    runs = by_tier(fast=60, nightly=200)
    share = {
        effect: sum((slope_of(effect, run).p_adjusted or 1) < 0.05 for run in range(runs)) / runs
        for effect in (0.01, 0.0)
    }
    assert share[0.01] >= 0.95
    assert share[0.0] <= 0.09


def test_gains_by_text_share_and_per_halving() -> None:
    rows = []
    for suffix, gain in (("-share-0.25", 0.3), ("-share-0.5", 0.2), ("", 0.1)):
        for seed, own in enumerate((3.0, 3.1, 3.3)):
            rows.append(Score("masked_lm", "nll", own, variant=f"ltg{suffix}", seed=seed))
            rows.append(Score("masked_lm", "nll", own - gain - 0.001 * seed, variant=f"elc{suffix}", seed=seed))
    gaps = {row.share: row for row in contrast_shares(rows)}
    values = {share: round(row.value, 3) for share, row in gaps.items()}
    assert values == {0.25: -0.301, 0.5: -0.201, 1.0: -0.101, None: -0.1}
    assert not contrast_shares([row for row in rows if "share" not in str(row.variant)])


DOCUMENTS = tuple(Document(f"{n}", " ".join(["word"] * Random(n).randint(5, 60))) for n in range(80))


def test_text_shares_are_nested_and_accurate() -> None:
    shares = {share: draw_share(DOCUMENTS, share, 0) for share in (0.125, 0.25, 0.5, 1.0)}
    assert all(set(small) < set(large) for small, large in pairwise(shares.values()))
    words = {share: sum(len(each.text.split()) for each in kept) for share, kept in shares.items()}
    assert all(share * words[1.0] <= count < share * words[1.0] + 60 for share, count in words.items())
    assert list(shares[0.5]) == [each for each in DOCUMENTS if each in shares[0.5]], "they stay in their order"


def test_variant_names_determine_their_settings() -> None:
    def changed(name: str, base: str) -> dict[str, object]:
        own, other = (asdict(make_recipe("tiny", each, steps=40)) for each in (name, base))
        return {key: own[key] for key in own if own[key] != other[key] and key != "variant"}

    assert changed("elc", "ltg") == {"architecture": "elc"}
    assert changed("elc-identity", "elc") == {"initialization": "identity"}
    assert changed("elc-bias-2", "elc") == {"initialization": "2"}
    assert changed("elc-frozen", "elc") == {"frozen_layer_weights": True}
    assert changed("elc-share-0.5", "elc") == {}
    tokenizer = train_wordpiece(["The cat saw the dog."] * 10, vocabulary=270)
    model = new_model(make_recipe("tiny", "elc-frozen"), tokenizer)
    held = {name for name, each in model.named_parameters() if not each.requires_grad}
    assert held == {name for name, _ in model.named_parameters() if name.endswith(".scalars")} != set()


TASK = generate_mixed_signals()["ambiguous main_verb_relative_position"]


def test_attribution_by_model_and_variant() -> None:
    shares = FeatureShares((0.5, 0.3), (0.1, 0.3), (0.2, 0.2), (0.1, 0.1), 0.004)
    rows = add_variant_means([*model_rows(shares), *model_rows(shares, "shuffled")])
    values = {(row.metric, row.against): row.value for row in rows}
    assert values["linguistic", None] == pytest.approx(0.4)
    assert values["surface", "tokens"] == pytest.approx(0.1)
    assert values["preference", None] == pytest.approx(0.4 - 0.2 - 0.2 + 0.1)
    assert values["preference", "shuffled"] == values["preference", None]
    assert values["gap", None] == 0.004


def test_shuffled_labels_leave_the_test_set_unchanged() -> None:
    other = shuffle_labels(TASK)
    assert other.test == TASK.test
    assert other.train != TASK.train
    assert [row.text for row in other.train] == [row.text for row in TASK.train]
    assert Counter(row.label for row in other.train) == Counter(row.label for row in TASK.train)
    assert mark_words(other, 3) == mark_words(TASK, 3)
    (marked,) = mark_words(TASK, 1)
    assert [marked.text[start:end] for start, end in marked.surface] in (["the", "a"], ["a", "the"])
    assert "was" in [marked.text[start:end] for start, end in marked.linguistic]


WORDS = ("The cat saw the dog.", "A dog ran to the old house.", "It did not see him!", "Who ran away then?")


@pytest.mark.nightly
def test_every_comparison_has_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "PAIRS", 1)
    monkeypatch.setattr(attribution, "mark_words", partial(mark_words, count=4))
    monkeypatch.setattr(gradients, "NODES", 2)
    monkeypatch.setattr(gradients, "MAX_NODES", 4)
    monkeypatch.setattr(generated, "PARADIGMS", dict(islice(generated.PARADIGMS.items(), 3)))
    texts, run = tmp_path / "words.txt", tmp_path / "run"
    documents = ["\n".join(WORDS[(n + k) % 4] for k in range(30 + n)) for n in range(30)]
    texts.write_text("\n<|endoftext|>\n".join(documents) + "\n")
    write(tmp_path / "glue", "rte", train=16, valid=8)
    whole = ("ltg", "elc", "zero", "elc-frozen", "elc-bias-2")
    variants = ",".join((*whole, "ltg-share-0.5", "elc-share-0.5"))
    training = ("--steps", "2", "--batch-size", "8", "--seeds", "2", "--device", "cpu")
    ended = layerwise("train", "elc", "--text", texts, "--variants", variants, *training, "--run", run)
    assert ended.code == 0, ended.err
    suites = ("--suite", "glue,attribution", "--data", tmp_path / "glue", "--limit", "16", "--epochs", "1")
    more = ("--layer-weights", "held,added", "--curve-points", "2", "--seeds", "1", "--max-length", "48")
    ended = layerwise("evaluate", run, *suites, *more)
    assert ended.code == 0, ended.err
    with Run.open(run) as opened:
        rows = {measure: opened.store.scores(measure) for measure in ("study", "data_share", "initial_bias", "glue")}
        tuned = {named(row) for row in opened.store.scores("tuning_convergence", metric="ratio")}
        reached = {named(row) for row in opened.store.scores("convergence", metric="ratio")}
    answered: dict[str, set[str]] = {}
    for row in rows["study"]:
        answered.setdefault(row.task, set()).add(named(row))
    before = {"elc - elc-frozen", *(f"{variant} - ltg" for variant in whole[1:])}
    after = {*before, "elc - elc-kept", "elc-kept - ltg", "ltg-rewired - ltg"}
    expected = {"masked_lm": before, "pairs": before, "glue": after, "linguistic attribution": after}
    assert {task: {name for name in names if "share" not in name} for task, names in answered.items()} == expected
    assert reached == {f"{variant} - ltg" for variant in whole[1:]}
    assert {f"{variant} - ltg" for variant in (*whole[1:], "elc-kept", "ltg-rewired")} <= tuned
    assert {row.share for row in rows["data_share"] if row.metric == "difference"} == {0.5, 1.0}
    assert {row.task for row in rows["initial_bias"]} == set(expected)
    assert "elc worth it against ltg" in ended.out
