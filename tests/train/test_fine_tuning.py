"""Fine-tuning under a plan."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification

from conftest import TINY
from layerwise.checkpoint import save
from layerwise.data.suites.classification import ClassificationTask, LabeledText
from layerwise.errors import CheckpointError, ModelError, PlanError, TrainError
from layerwise.plan import Plan
from layerwise.stack import load
from layerwise.train import fine_tuning
from layerwise.train.fine_tuning import FineTuningConfig, curve_steps, fine_tune
from layerwise.train.new_head import head_parameters, with_new_head
from tier import first_fast
from tiny_tokenizers import word_tokenizer
from train.learners import WORDS, planted, tiny_bert
from train.tiny_models import tiny_vit

DEPTH = 4
SETTINGS = FineTuningConfig(learning_rates=(2e-3,), batch_size=16, epochs=2, patience=2)
SKIP = Plan.parse("0 3")

pytestmark = pytest.mark.usefixtures("quiet_transformers")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    return tiny_bert(tmp_path_factory.mktemp("bert"), num_hidden_layers=DEPTH, **dropout)


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Tensor]]:
    found: list[dict[str, Tensor]] = []
    answers = fine_tuning._answers

    def keep(model: Any, *rest: Any) -> Any:
        found.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return answers(model, *rest)

    monkeypatch.setattr(fine_tuning, "_answers", keep)
    return found


def _renumbered(name: str, plan: Plan) -> str:
    for slot, layer in enumerate(plan.order()):
        if f".layer.{slot}." in name:
            return name.replace(f".layer.{slot}.", f".layer.{layer}.")
    return name


@pytest.mark.parametrize("seed", first_fast([0, 1]))
def test_fine_tuning_under_a_plan_matches_the_pruned_checkpoint(
    seed: int, bert: Path, tmp_path: Path, learned: list[dict[str, Tensor]]
) -> None:
    stack = load(bert, device="cpu")
    save(stack, SKIP, tmp_path / "pruned")
    under, pruned = (
        fine_tune(location, planted(), SETTINGS, seed, plan=plan, device="cpu")
        for location, plan in ((bert, SKIP), (tmp_path / "pruned", None))
    )
    assert replace(under, seconds=0) == replace(pruned, seconds=0)
    assert len(set(under.predictions)) == 2
    whole, part = learned
    assert all(torch.equal(tensor, whole[_renumbered(name, SKIP)]) for name, tensor in part.items())
    untaught = stack.model.state_dict()
    for name, tensor in whole.items():
        if ".layer.1." in name or ".layer.2." in name:
            assert torch.equal(tensor, untaught[name])
    assert not torch.equal(
        whole["bert.encoder.layer.3.output.dense.weight"], untaught["bert.encoder.layer.3.output.dense.weight"]
    )


@pytest.mark.parametrize("text", first_fast(["0 (1|2)*3 3", "0 1*3 3"]))
def test_groups_and_loops_are_fine_tuned(text: str, bert: Path, learned: list[dict[str, Tensor]]) -> None:
    fine_tune(bert, planted(), replace(SETTINGS, epochs=1), 0, plan=Plan.parse(text), device="cpu")
    before = load_file(bert / "model.safetensors")
    changed = {
        name for name, tensor in before.items() if name in learned[0] and not torch.equal(tensor, learned[0][name])
    }
    for layer in range(DEPTH):
        assert (f"bert.encoder.layer.{layer}.output.dense.weight" in changed) == (layer in Plan.parse(text).layers())


@pytest.mark.parametrize("plan", first_fast([Plan.parse("0 (1|2)*3 3"), SKIP, None]))
def test_training_only_the_head_leaves_the_body_unchanged(
    plan: Plan | None, bert: Path, learned: list[dict[str, Tensor]]
) -> None:
    settings = replace(SETTINGS, train="head", learning_rates=(3e-2,))
    outcome = fine_tune(bert, planted(), settings, 0, plan=plan, device="cpu")
    (weights,) = learned
    before = load_file(bert / "model.safetensors")
    body = [name for name in weights if name.startswith("bert.") and ".pooler." not in name]
    assert len(body) > 16 * DEPTH
    assert all(torch.equal(weights[name], before[name]) for name in body)
    again = fine_tune(bert, planted(), replace(settings, epochs=1), 1, plan=plan, device="cpu")
    assert outcome.labels == again.labels
    assert not torch.equal(learned[0]["classifier.weight"], learned[1]["classifier.weight"])


def test_a_pooler_belongs_to_the_head_if_the_checkpoint_lacks_it(bert: Path, tmp_path: Path) -> None:
    found = {}
    AutoModelForSequenceClassification.from_pretrained(bert).bert.save_pretrained(tmp_path)
    for location in (bert, tmp_path):
        model, report = AutoModelForSequenceClassification.from_pretrained(location, output_loading_info=True)
        found[location] = head_parameters(model, report["missing_keys"])
    classifier = {"classifier.weight", "classifier.bias"}
    assert found[tmp_path] == classifier
    assert found[bert] == classifier | {"bert.pooler.dense.weight", "bert.pooler.dense.bias"}


MOE = {"num_local_experts": 2, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 8, "head_dim": 8}


@pytest.mark.parametrize("plan", first_fast([Plan.parse("1 0"), None]))
@pytest.mark.parametrize("kind", first_fast(["mixtral", "qwen3_moe", "llama"]))
def test_the_best_epoch_is_restored(
    kind: str, plan: Plan | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = word_tokenizer(WORDS)
    sizes = {**TINY, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24, **MOE}
    config = AutoConfig.for_model(kind, num_hidden_layers=2, vocab_size=len(tokenizer), **sizes)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    epochs: list[dict[str, Tensor]] = []
    end: dict[str, Tensor] = {}
    scores = iter([0.9, 0.5, 0.4])

    def keep(model: Any) -> dict[str, Tensor]:
        return {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}

    class Followed(fine_tuning._FineTuningTrainer):
        def evaluate(self, *given: Any, **options: Any) -> Any:
            epochs.append(keep(self.model))
            return super().evaluate(*given, **options)

    monkeypatch.setattr(fine_tuning, "task_value", lambda *_: next(scores))
    monkeypatch.setattr(fine_tuning, "_FineTuningTrainer", Followed)
    settings = replace(SETTINGS, learning_rates=(1e-2,), epochs=3, patience=3)
    result = fine_tune(
        tmp_path,
        planted(64),
        settings,
        0,
        plan=plan,
        device="cpu",
        inspect_model=lambda model, _: end.update(keep(model)),
    )
    assert result.epoch == 1
    assert end.keys() == epochs[0].keys()
    assert [name for name in end if not torch.equal(end[name], epochs[0][name])] == []
    assert any(not torch.equal(end[name], epochs[2][name]) for name in end if "mlp" in name), "the test sees nothing"


def test_unsupported_models_are_rejected(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="4"):
        fine_tune(bert, planted(), SETTINGS, 0, plan=Plan.parse("0 9"), device="cpu")
    with pytest.raises(TrainError, match=r"on planted .* under 0 3"):
        fine_tune(bert, planted(), replace(SETTINGS, learning_rates=(1e30,)), 0, plan=SKIP, device="cpu")
    tiny_vit().save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="unknown device 'nowhere'"):
        with_new_head(str(tmp_path), ("a", "b"), device="nowhere")
    with pytest.raises(CheckpointError, match="BertModel must have a head outside"):
        head_parameters(AutoModelForSequenceClassification.from_pretrained(bert).bert, ())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rates": ()}, "learning_rates must be"),
        ({"learning_rates": (0.0,)}, "learning_rates must be"),
        ({"epochs": 0}, "epochs must be"),
        ({"warmup": 1.0}, "warmup must be"),
        ({"evals": -1}, "evals must be"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TrainError, match=message):
        FineTuningConfig(**settings)


def _scored(count: int = 160) -> ClassificationTask:
    rows = [
        LabeledText(
            " ".join(WORDS[0] if at < number % 6 else WORDS[1 + (number * 7 + at) % 19] for at in range(5)),
            None,
            float(number % 6),
        )
        for number in range(count)
    ]
    rows = [
        row._replace(text=f"{row.text} {WORDS[1 + number % 19]} {WORDS[1 + number // 19]}")
        for number, row in enumerate(rows)
    ]
    return ClassificationTask(
        "glue", "scores", (), "pearson", tuple(rows[:100]), tuple(rows[100:130]), tuple(rows[130:]), also=("spearman",)
    )


@pytest.mark.parametrize("plan", first_fast([SKIP, None]))
def test_regression_uses_squared_error(plan: Plan | None, bert: Path) -> None:
    settings = replace(SETTINGS, batch_size=10, epochs=4, patience=4)
    outcome = fine_tune(bert, _scored(), settings, 0, plan=plan, device="cpu")
    assert outcome.selection > 0.8
    assert outcome.labels == tuple(row.label for row in _scored().test)
    error = sum((answer - score) ** 2 for answer, score in zip(outcome.predictions, outcome.labels, strict=True)) / 30
    assert error < 1.5  # the scores' own variance is 2.9


CURVED = FineTuningConfig(learning_rates=(3e-3,), batch_size=16, epochs=2)


@pytest.mark.slow
def test_learning_curves_do_not_change_the_training(tmp_path: Path) -> None:
    model, task = tiny_bert(tmp_path / "bert"), planted(64)
    plain, followed = (fine_tune(model, task, replace(CURVED, evals=evals), 0, device="cpu") for evals in (0, 3))
    assert (plain.curve, plain.step_seconds) == ((), None)
    assert replace(followed, seconds=plain.seconds, curve=(), step_seconds=None) == plain
    assert [point.step for point in followed.curve] == [1, 2, 4], "two steps an epoch, and the points of the curve"
    assert max(point.score for point in followed.curve if point.step != 1) == followed.selection
    assert followed.step_seconds > 0


def test_curve_points_are_evenly_spaced_in_logarithms() -> None:
    assert sorted(curve_steps(100, 3)) == [1, 10, 100]
    assert curve_steps(2, 10) == {1, 2}
