"""Members, merged models and ensembles: each number against its definition, on small models."""

import numpy as np
import pytest
import torch
from torch import Tensor

from cli.picture_models import tiny_vit
from conftest import tiny_llama
from layerwise.data.splits import Splits
from layerwise.errors import ModelError
from layerwise.experiments.merging.comparison import compare, evaluate_members
from layerwise.plan import Plan
from layerwise.plan.families import assignments
from layerwise.results.rows import Score
from layerwise.results.selection import Rows
from layerwise.stack import Stack, load
from measure.planted_classifiers import Listed

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


def value(rows: list[Score], part: str, condition: str, metric: str = "accuracy") -> Score:
    found = Rows(rows).one(measure="merging", part=part, condition=condition, metric=metric)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def rows() -> list[Score]:
    return compare("arm", STACKS, SPLITS, draws=6, seed=5)


def test_members_and_their_ensemble_in_order(rows: list[Score]) -> None:
    said = [logits(stack, Plan.identity(DEPTH)) for stack in STACKS.values()]
    shares = [share(each) for each in said]
    assert value(rows, "members", "sequential").value == pytest.approx(np.mean(shares))
    assert value(rows, "members", "sequential", "accuracy_spread").value == pytest.approx(np.std(shares, ddof=1))
    together = torch.stack(said).mean(0)
    assert value(rows, "ensemble", "sequential").value == pytest.approx(share(together))
    assert value(rows, "ensemble", "sequential", "accuracy_top5").value == pytest.approx(share(together, 5))
    assert value(rows, "ensemble", "sequential").low < share(together) < value(rows, "ensemble", "sequential").high


def test_the_best_member_is_chosen_on_other_images_than_it_is_reported_on(rows: list[Score]) -> None:
    validation = evaluate_members(STACKS, SPLITS.validation, SPLITS.collate, "sequential", 5)
    test = evaluate_members(STACKS, SPLITS.test, SPLITS.collate, "sequential", 5)
    chosen = max(STACKS, key=lambda name: validation.members[name].accuracy)
    assert value(rows, "best member", "sequential").value == pytest.approx(test.members[chosen].accuracy)
    assert chosen != max(STACKS, key=lambda name: test.members[name].accuracy), "the two rules differ here"
    gap = value(rows, "ensemble", "sequential", "accuracy_above")
    assert gap.value == pytest.approx(test.ensemble.accuracy - test.members[chosen].accuracy)
    assert gap.low < gap.value < gap.high


@pytest.mark.parametrize("order", ["sequential", "random"])
def test_merged_models_are_the_drawn_assignments(rows: list[Score], order: str) -> None:
    plans = assignments("abc", DEPTH, 6, 5, own_depth=order == "sequential")
    merged = Stack.with_sources(STACKS)
    shares = {plan: share(logits(merged, plan)) for plan in plans}
    assert value(rows, "merged", order).value == pytest.approx(np.mean([shares[plan] for plan in plans]))
    drawn = {row.plan: row.value for row in rows if (row.measure, row.condition) == ("merges", order)}
    assert drawn == pytest.approx({str(plan): found for plan, found in shares.items()})
    assert len(set(drawn.values())) > 1


def test_random_orders_are_never_the_order_as_trained(rows: list[Score]) -> None:
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


def test_every_row_has_a_key_of_its_own_and_the_study_is_a_function_of_the_seed(rows: list[Score]) -> None:
    keys = [(row.measure, row.key) for row in rows]
    assert len(keys) == len(set(keys))
    seen: list[tuple[int, int]] = []
    assert compare("arm", STACKS, SPLITS, draws=6, seed=5, progress=lambda *done: seen.append(done)) == rows
    assert seen == [(number, 18) for number in range(1, 19)]


def test_without_draws_nothing_is_merged() -> None:
    found = {(row.part, row.condition) for row in compare("arm", STACKS, SPLITS, draws=0)}
    assert found == {
        (part, order) for part in ("members", "best member", "ensemble") for order in ("sequential", "random")
    }


def test_language_models_are_led_by_their_loss() -> None:
    ids = torch.randint(3, 97, (24, 9), generator=torch.Generator().manual_seed(0))
    texts = Listed([{"input_ids": row, "labels": row} for row in ids])
    splits = Splits("text", "d", texts, texts, texts)
    stacks = {name: load(tiny_llama(3, seed=seed)) for seed, name in enumerate("ab")}
    found = compare("arm", stacks, splits, draws=2)
    with torch.inference_mode():
        said = torch.stack([stack.model(ids).logits for stack in stacks.values()]).mean(0)
    nll = torch.nn.functional.cross_entropy(said[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert value(found, "ensemble", "sequential", "nll").value == pytest.approx(nll.item(), rel=1e-5)
    assert not any(row.metric.startswith("accuracy_top5") for row in found)


def test_one_model_has_nobody_to_merge_with() -> None:
    with pytest.raises(ModelError, match="two models or more; arm has 1"):
        compare("arm", {"a": STACKS["a"]}, SPLITS, draws=1)
