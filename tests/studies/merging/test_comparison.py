"""Merged models: their sources, members, ensembles and replaced nodes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cli.picture_models import tiny_vit
from conftest import tiny_llama
from layerwise.data.splits import Splits
from layerwise.errors import ModelError, RunError
from layerwise.plan import Plan, Visit
from layerwise.plan.families import assignments
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.results.training_record import TrainingRecord
from layerwise.runner.source_models import (
    SourceModel,
    check_one_base,
    group_by_variant,
    name_models,
    read_source_models,
)
from layerwise.stack import Stack, load
from layerwise.studies.robustness.merging import (
    MAX_NODES,
    compare_models,
    evaluate_members,
    list_replacements,
    replace_nodes,
)
from measure.planted_classifiers import Idle, Listed, Reader, classifier, splits

CLASSES, DEPTH = 7, 3


def images(count: int, seed: int) -> Listed:
    chance = torch.Generator().manual_seed(seed)
    pixels = torch.randn(count, 1, 8, 8, generator=chance)
    labels = torch.randint(0, CLASSES, (count,), generator=chance)
    return Listed([{"pixel_values": x, "labels": y} for x, y in zip(pixels, labels, strict=True)])


SPLITS = Splits("noise", "d", images(8, 0), images(40, 1), images(60, 2), tuple("abcdefg"))


def model(seed: int) -> Stack:
    return load(tiny_vit(CLASSES, DEPTH, seed, spread=0.3).eval())


STACKS = {name: model(seed) for seed, name in enumerate("abc")}
TEST = SPLITS.collate([SPLITS.test[index] for index in range(60)])


def logits(stack: Stack, plan: Plan) -> Tensor:
    with torch.inference_mode():
        return stack.logits(plan, pixel_values=TEST["pixel_values"])


def share(said: Tensor, top: int = 1) -> float:
    return (said.topk(top).indices == TEST["labels"][:, None]).any(-1).double().mean().item()


def value(rows: list[Score], strategy: str, order: str, metric: str = "accuracy") -> Score:
    found = Rows(rows).one(measure="merging", strategy=strategy, order=order, metric=metric)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def rows() -> list[Score]:
    return compare_models("variant", STACKS, SPLITS, draws=6, seed=5)


def test_members_and_their_ensemble_in_order(rows: list[Score]) -> None:
    said = [logits(stack, Plan.identity(DEPTH)) for stack in STACKS.values()]
    shares = [share(each) for each in said]
    assert value(rows, "members", "sequential").value == pytest.approx(np.mean(shares))
    assert value(rows, "members", "sequential", "accuracy_spread").value == pytest.approx(np.std(shares, ddof=1))
    together = torch.stack(said).mean(0)
    assert value(rows, "ensemble", "sequential").value == pytest.approx(share(together))
    assert value(rows, "ensemble", "sequential", "accuracy_top5").value == pytest.approx(share(together, 5))
    assert value(rows, "ensemble", "sequential").low < share(together) < value(rows, "ensemble", "sequential").high


def test_the_best_member_is_selected_on_validation_images(rows: list[Score]) -> None:
    validation = evaluate_members(STACKS, SPLITS.validation, SPLITS.collate, "sequential", 5)
    test = evaluate_members(STACKS, SPLITS.test, SPLITS.collate, "sequential", 5)
    chosen = max(STACKS, key=lambda name: validation.members[name].accuracy)
    assert value(rows, "best member", "sequential").value == pytest.approx(test.members[chosen].accuracy)
    assert chosen != max(STACKS, key=lambda name: test.members[name].accuracy), "the two rules differ here"
    gap = value(rows, "ensemble", "sequential", "accuracy_above")
    assert gap.value == pytest.approx(test.ensemble.accuracy - test.members[chosen].accuracy)
    assert gap.low < gap.value < gap.high


@pytest.mark.parametrize("order", ["sequential", "random"])
def test_merged_models_run_the_drawn_assignments(rows: list[Score], order: str) -> None:
    plans = assignments("abc", DEPTH, 6, 5, own_depth=order == "sequential")
    merged = Stack.with_sources(STACKS)
    shares = {plan: share(logits(merged, plan)) for plan in plans}
    assert value(rows, "merged", order).value == pytest.approx(np.mean([shares[plan] for plan in plans]))
    drawn = {row.plan: row.value for row in rows if (row.measure, row.order) == ("merges", order)}
    assert drawn == pytest.approx({str(plan): found for plan, found in shares.items()})
    assert len(set(drawn.values())) > 1


def test_random_orders_are_never_the_original_order(rows: list[Score]) -> None:
    in_order = evaluate_members(STACKS, SPLITS.test, SPLITS.collate, "sequential", 5)
    one, again, other = (evaluate_members(STACKS, SPLITS.test, SPLITS.collate, "random", seed) for seed in (5, 5, 6))
    for name in STACKS:
        assert np.array_equal(one.members[name].nll, again.members[name].nll)
        assert not np.array_equal(one.members[name].nll, other.members[name].nll)
        # Orders are drawn for every batch of three images, each with a loss other than that in order.
        assert not np.isclose(one.members[name].nll, in_order.members[name].nll, atol=1e-6).any()
    assert value(rows, "members", "random", "nll").value == pytest.approx(
        np.mean([found.mean_nll for found in one.members.values()])
    )


def test_language_models_are_compared_by_loss() -> None:
    ids = torch.randint(3, 97, (24, 9), generator=torch.Generator().manual_seed(0))
    texts = Listed([{"input_ids": row, "labels": row} for row in ids])
    splits = Splits("text", "d", texts, texts, texts)
    stacks = {name: load(tiny_llama(3, seed=seed)) for seed, name in enumerate("ab")}
    found = compare_models("variant", stacks, splits, draws=2)
    with torch.inference_mode():
        said = torch.stack([stack.model(ids).logits for stack in stacks.values()]).mean(0)
    nll = torch.nn.functional.cross_entropy(said[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert value(found, "ensemble", "sequential", "nll").value == pytest.approx(nll.item(), rel=1e-5)
    assert not any(row.metric.startswith("accuracy_top5") for row in found)


def test_one_model_cannot_be_merged() -> None:
    with pytest.raises(ModelError, match="requires at least two models of a variant, got 1 of variant"):
        compare_models("variant", {"a": STACKS["a"]}, SPLITS, draws=1)


PLANTED = splits(32)


@given(
    depth=st.integers(2, 12),
    models=st.integers(2, 4),
    seed=st.integers(0, 9),
    order=st.sampled_from(["sequential", "random"]),
)
def test_every_node_of_every_model_is_lost_once(depth: int, models: int, seed: int, order: str) -> None:
    names = "abcd"[:models]
    plans = list(list_replacements(names, depth, order, seed))
    assert len(plans) == models * min(MAX_NODES, depth)
    lost_layers = []
    for number, (lost, replaced) in enumerate(plans):
        model, other = names[number // min(MAX_NODES, depth)], names[(number // min(MAX_NODES, depth) + 1) % models]
        kept, all_of_it = visits(lost), visits(replaced)
        assert sorted(layer for layer, _ in all_of_it) == list(range(depth))
        # The remaining layers run in the order that they have when the node is replaced.
        assert kept == [visit for visit in all_of_it if visit[1] == model]
        gone = [visit for visit in all_of_it if visit[1] == other]
        assert len(kept) + len(gone) == depth
        lost_layers += [(model, layer) for layer, _ in gone]
        assert order == "random" or [layer for layer, _ in all_of_it] == list(range(depth))
    assert sorted(lost_layers) == [(model, layer) for model in names for layer in range(depth)]


def visits(plan: Plan) -> list[tuple[int, str | None]]:
    return [(stage.layer, stage.source) for stage in plan.stages if isinstance(stage, Visit)]


def test_replacing_a_node_restores_the_planted_reader() -> None:
    stacks = {name: classifier([Idle(), Reader(), Idle(), Idle()]) for name in "ab"}
    merged = Stack.with_sources(stacks)
    steps: list[None] = []
    rows = list(replace_nodes("variant", merged, ("a", "b"), PLANTED, 0, lambda: steps.append(None)))
    found = {(row.strategy, row.order, row.metric): row for row in rows}
    assert len(steps) == 2
    for order in ("sequential", "random"):
        whole = found["node replaced", order, "accuracy"].value
        assert whole == pytest.approx(1.0)
        lost = found["node failed", order, "accuracy"].value
        # One of the four nodes has the reader; without it the model guesses.
        assert 0.75 <= lost < 0.85
        gap = found["node replaced", order, "accuracy_above"]
        assert gap.value == pytest.approx(whole - lost)


def test_the_spread_is_over_models_and_not_over_nodes() -> None:
    merged = Stack.with_sources({name: classifier([Idle(), Reader(), Idle(), Idle()]) for name in "ab"})
    found = {
        (row.strategy, row.order, row.metric): row
        for row in replace_nodes("variant", merged, ("a", "b"), PLANTED, 0, lambda: None)
    }
    lost = found["node failed", "sequential", "accuracy"]
    assert found["node failed", "sequential", "accuracy_spread"].value == 0
    assert lost.low < lost.value < lost.high
    gained = found["node replaced", "sequential", "accuracy_above"]
    assert 0 < gained.low < gained.value == pytest.approx(1 - lost.value)


def pedigree(variant: str, seed: int = 0, base: str = "base-1", extension: str = "plain") -> TrainingRecord:
    return TrainingRecord(variant, seed, base, "data", "digits", {"extension": extension}, 1, 1.0, 1, 1.0, 1)


def trained(folder: Path, found: TrainingRecord) -> Path:
    folder.mkdir(parents=True)
    found.write(folder)
    return folder


def run_of(folder: Path, *variants: str, seeds: int = 2) -> Path:
    for variant in variants:
        for seed in range(seeds):
            trained(folder / variant / f"seed-{seed}" / "model", pedigree(variant, seed))
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text("{}")
    return folder


def test_every_finished_model_of_a_run_is_a_source_of_its_variant(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "layershuffle", "baseline", "retrained-6", seeds=3)
    variants = group_by_variant(read_source_models([str(run)]))
    assert {variant: list(found) for variant, found in variants.items()} == {
        "baseline": ["a", "b", "c"],
        "layershuffle": ["a", "b", "c"],
    }
    assert variants["layershuffle"]["c"].location == str(run / "layershuffle" / "seed-2" / "model")


def test_models_keep_the_given_order(tmp_path: Path) -> None:
    one, two = (str(trained(tmp_path / name, pedigree("variant"))) for name in ("z", "y"))
    (variant, found), *rest = group_by_variant(read_source_models([one, two, "owner/hub-model"])).items()
    assert (variant, [source.location for source in found.values()]) == ("variant", [one, two])
    assert [(name, list(more)) for name, more in rest] == [("models", ["a"])]


def test_duplicate_models_and_empty_runs_are_errors(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "variant")
    with pytest.raises(ModelError, match="must be distinct"):
        read_source_models([str(run), str(run / "variant" / "seed-0" / "model")])
    with pytest.raises(RunError, match="no finished model"):
        read_source_models([str(run_of(tmp_path / "empty"))])


def test_different_base_models_are_an_error_and_unknown_ones_a_note() -> None:
    known = {
        "a": SourceModel("variant", "A", pedigree("variant")),
        "b": SourceModel("variant", "B", pedigree("variant", 1)),
    }
    assert check_one_base(known) == ()
    with pytest.raises(ModelError, match=r"a \(A\) and c \(C\) were trained from different base"):
        check_one_base({**known, "c": SourceModel("variant", "C", pedigree("variant", base="base-2"))})
    (said,) = check_one_base({**known, "c": SourceModel("models", "C", None), "d": SourceModel("models", "D", None)})
    assert said.startswith("the base of c, d is unknown")
    assert check_one_base({"a": SourceModel("models", "A", None)}) == ()


def test_any_number_of_models_can_be_named() -> None:
    many = list(name_models([SourceModel("variant", str(number), None) for number in range(60)]))
    assert len(set(many)) == 60
    assert many[26:28] == ["a1", "b1"]
