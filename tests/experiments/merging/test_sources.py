"""The models that layers are taken from: models and runs, their names, and whether they are of one base."""

from pathlib import Path

import pytest

from layerwise.errors import ModelError, RunError
from layerwise.experiments.merging.run import SourceModel, by_arm, check_one_base, named, source_models
from layerwise.results.training_record import TrainingRecord


def pedigree(arm: str, seed: int = 0, base: str = "base-1", variant: str = "plain") -> TrainingRecord:
    return TrainingRecord(arm, seed, base, "data", "digits", {"variant": variant}, 1, 1.0, 1, 1.0, 1)


def trained(folder: Path, found: TrainingRecord) -> Path:
    folder.mkdir(parents=True)
    found.write(folder)
    return folder


def run_of(folder: Path, *arms: str, seeds: int = 2) -> Path:
    for arm in arms:
        for seed in range(seeds):
            trained(folder / arm / f"seed-{seed}" / "model", pedigree(arm, seed))
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text("{}")
    return folder


def test_every_finished_model_of_a_run_is_a_source_arm_by_arm(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "layershuffle", "baseline", "retrained-6", seeds=3)
    arms = by_arm(source_models([str(run)]))
    assert {arm: list(found) for arm, found in arms.items()} == {
        "baseline": ["a", "b", "c"],
        "layershuffle": ["a", "b", "c"],
    }
    assert arms["layershuffle"]["c"].location == str(run / "layershuffle" / "seed-2" / "model")


def test_models_keep_the_order_they_were_given_in(tmp_path: Path) -> None:
    one, two = (str(trained(tmp_path / name, pedigree("arm"))) for name in ("z", "y"))
    (arm, found), *rest = by_arm(source_models([one, two, "owner/hub-model"])).items()
    assert (arm, [source.location for source in found.values()]) == ("arm", [one, two])
    assert [(name, list(more)) for name, more in rest] == [("models", ["a"])]


def test_a_model_named_twice_and_a_run_without_models_are_refused(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", "arm")
    with pytest.raises(ModelError, match="named twice"):
        source_models([str(run), str(run / "arm" / "seed-0" / "model")])
    with pytest.raises(RunError, match="no finished model"):
        source_models([str(run_of(tmp_path / "empty"))])


def test_models_of_different_base_are_refused_and_unknown_bases_are_said() -> None:
    known = {"a": SourceModel("arm", "A", pedigree("arm")), "b": SourceModel("arm", "B", pedigree("arm", 1))}
    assert check_one_base(known) == ()
    with pytest.raises(ModelError, match=r"a \(A\) and c \(C\) are of different base"):
        check_one_base({**known, "c": SourceModel("arm", "C", pedigree("arm", base="base-2"))})
    (said,) = check_one_base({**known, "c": SourceModel("models", "C", None), "d": SourceModel("models", "D", None)})
    assert said.startswith("nothing says what c, d were refined from")
    assert check_one_base({"a": SourceModel("models", "A", None)}) == ()


def test_layers_that_need_a_part_of_their_own_model_are_known() -> None:
    assert SourceModel("arm", "A", pedigree("arm", variant="position")).added == "a position encoding"
    assert SourceModel("arm", "A", pedigree("arm", variant="wiring")).added == "learned layer weights"
    assert SourceModel("arm", "A", pedigree("arm", variant="predict")).added is None
    assert SourceModel("models", "A", None).added is None


def test_there_are_names_for_any_number() -> None:
    many = list(named([SourceModel("arm", str(number), None) for number in range(60)]))
    assert len(set(many)) == 60
    assert many[26:28] == ["a1", "b1"]
