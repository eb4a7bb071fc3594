"""The study of layer weights: its arms differ in one thing each, and shares of a text hold one another."""

from dataclasses import asdict
from itertools import pairwise
from random import Random

from layerwise.data.text.documents import Document
from layerwise.data.text.vocabulary import train_wordpiece
from layerwise.experiments.layer_weights_study import arms as study
from layerwise.train.pretrain.recipe import new_model, pretraining_recipe

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


def test_recipes_of_a_share_differ_in_their_name_alone() -> None:
    recipes = [pretraining_recipe("tiny", name) for name in ("ltg", "elc", "zero")]
    assert [each.arm for each in study.share_recipes(recipes, 0.5)] == ["ltg-share-0.5", "elc-share-0.5"]


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
