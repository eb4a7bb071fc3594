"""Plans on layers that read each other: a skipped layer loses its column, in place and step by step."""

from pathlib import Path

import pytest
import torch

import layerwise
from layerwise import Plan
from layerwise.errors import ModelError, UnsupportedModel
from layerwise.experiments.sweep.config import Sweep
from layerwise.measure.interventions.sweep import runnable
from layerwise.models import VARIANTS, ElcConfig, ElcForMaskedLM, ElcForSequenceClassification
from layerwise.stack import load
from models.published import as_published, logits, padded_batch, random_model
from rounding import realigned
from tier import first_fast

PLANS = ("0-2", "0 2", "1-2", "0 2 1", "0 1*2 2")


@pytest.mark.parametrize("missing", ["renormalise", "keep"])
@pytest.mark.parametrize("variant", first_fast(VARIANTS, 2))
def test_a_plan_is_a_model_made_by_hand(variant: str, missing: str) -> None:
    model = random_model(variant, missing_sources=missing)
    stack = load(model)
    ids, real = padded_batch(24)
    for plan in map(Plan.parse, PLANS):
        with torch.no_grad(), stack.under(plan):
            found = model(ids, attention_mask=real).logits
        with torch.no_grad():
            step_by_step = stack.logits(plan, input_ids=ids, attention_mask=real)
            expected = logits(
                as_published(model), ids, real.bool(), variant=variant, heads=2, order=plan.order(), missing=missing
            )
        scale = float(expected.abs().max())
        assert float((found - expected).abs().max()) < 1e-6 * scale, str(plan)
        assert float((step_by_step - expected).abs().max()) < 1e-6 * scale, str(plan)


def test_weights_that_are_not_renormalised_would_be_seen() -> None:
    model = random_model("zero")
    ids, real = padded_batch(24)
    with torch.no_grad(), load(model).under(Plan.parse("0 2")):
        found = model(ids, attention_mask=real).logits
    with torch.no_grad():
        wrong = logits(as_published(model), ids, real.bool(), variant="zero", heads=2, order=(0, 2), missing="keep")
    assert float((found - wrong).abs().max()) > 1e-3 * float(wrong.abs().max())


@pytest.mark.parametrize("variant", first_fast(VARIANTS, 2))
def test_a_saved_folder_is_loaded_as_a_stack(variant: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = ElcForMaskedLM(ElcConfig.of_size("tiny", variant=variant, vocab_size=40)).eval()
    model.save_pretrained(tmp_path)
    stack = layerwise.load(tmp_path)
    assert (type(stack.model), stack.depth, stack.path) == (ElcForMaskedLM, 6, "encoder.layers")
    realigned(stack.model)
    ids, real = padded_batch(12, vocabulary=40)
    with torch.no_grad():
        expected = model(ids, attention_mask=real).logits
        with stack.under(Plan.identity(6)):
            assert torch.equal(stack.model(ids, attention_mask=real).logits, expected)
    assert [layer.number for layer in stack.model.encoder.layers] == list(range(6))


def test_the_class_of_a_folder_is_the_one_it_was_saved_as(tmp_path: Path) -> None:
    ElcForSequenceClassification(ElcConfig.of_size("tiny", vocab_size=40)).save_pretrained(tmp_path)
    assert type(layerwise.load(tmp_path).model) is ElcForSequenceClassification


def test_parallel_branches_are_refused_where_layers_mix() -> None:
    with (
        pytest.raises(UnsupportedModel, match="parallel branches"),
        load(random_model("elc")).under(Plan.parse("0 (1|2)")),
    ):
        raise AssertionError("it was not refused")


def test_a_study_leaves_out_what_the_layers_cannot_run_and_says_so() -> None:
    stack = load(random_model("elc"))
    members = Sweep(model="elc", families=("painters",)).members(stack.depth)
    kept, left_out = runnable(stack, members)
    parallel = [member for member in members if "|" in str(member.plan)]
    assert parallel
    assert set(kept) == set(members) - set(parallel)
    assert len(left_out) == 1
    assert left_out[0].startswith(f"{len(parallel)} plans of painters left out: the layers of ElcForMaskedLM read")
    assert runnable(load(random_model("ltg")), members) == (members, ())
    with pytest.raises(UnsupportedModel, match=r"\(1\|2\)"):
        runnable(stack, Sweep(model="elc", families=(), plan=("0 (1|2)",)).members(stack.depth))


def test_families_of_which_nothing_is_left_are_refused() -> None:
    stack = load(random_model("elc"))
    members = Sweep(model="elc", families=("painters",)).members(stack.depth)
    parallel = [member for member in members if "|" in str(member.plan) or member.family == "identity"]
    with pytest.raises(UnsupportedModel, match=r"^the model can run none of these plans: \d+ plans of painters left"):
        runnable(stack, parallel)
    kept, left_out = runnable(stack, parallel[1:])  # nothing is compared with the model as trained
    assert (kept, len(left_out)) == ((), 1)


def test_without_the_import_the_error_says_what_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ElcForMaskedLM(ElcConfig.of_size("tiny", vocab_size=40)).save_pretrained(tmp_path)
    from transformers import CONFIG_MAPPING

    monkeypatch.delitem(CONFIG_MAPPING._extra_content, ElcConfig.model_type)
    with pytest.raises(ModelError, match=r"`import layerwise\.models` before it is loaded"):
        layerwise.load(tmp_path)
