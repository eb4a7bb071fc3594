"""Plans and wirings of models whose layers mix."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

import layerwise
from layerwise.errors import ModelError, PlanError, UnsupportedModelError
from layerwise.measure.interventions.sweep import filter_runnable
from layerwise.models import VARIANTS, ElcConfig, ElcForMaskedLM, ElcForSequenceClassification
from layerwise.models.elc.wiring import ElcWiring, rewired
from layerwise.plan import Edge, LayerWeights, Plan
from layerwise.runner.plan_choice import PlanChoice
from layerwise.stack import load
from models.published import as_published, logits, padded_batch, random_model, small_config
from rounding import realigned
from tier import first_fast

PLANS = ("0-2", "0 2", "1-2", "0 2 1", "0 1*2 2")


@pytest.mark.parametrize("missing", ["renormalize", "keep"])
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


def test_the_class_of_a_folder_is_the_one_it_was_saved_as(tmp_path: Path) -> None:
    ElcForSequenceClassification(ElcConfig.of_size("tiny", vocab_size=40)).save_pretrained(tmp_path)
    assert type(layerwise.load(tmp_path).model) is ElcForSequenceClassification


def test_studies_leave_out_what_the_layers_cannot_run_or_refuse() -> None:
    stack = load(random_model("elc"))
    members = PlanChoice.check(("painters",), (), (), None, "2").list_members(stack.depth)
    kept, left_out = filter_runnable(stack, members)
    parallel = [member for member in members if "|" in str(member.plan)]
    assert parallel
    assert set(kept) == set(members) - set(parallel)
    assert len(left_out) == 1
    assert left_out[0].startswith(
        f"{len(parallel)} plans of painters omitted: 0 (1|2) cannot be run: the layers of ElcForMaskedLM weight"
    )
    assert filter_runnable(load(random_model("ltg")), members) == (members, ())
    with pytest.raises(UnsupportedModelError, match=r"\(1\|2\)"):
        filter_runnable(stack, PlanChoice.check((), ("0 (1|2)",), (), None, "2").list_members(stack.depth))

    stack = load(random_model("elc"))
    members = PlanChoice.check(("painters",), (), (), None, "2").list_members(stack.depth)
    parallel = [member for member in members if "|" in str(member.plan) or member.family == "identity"]
    with pytest.raises(UnsupportedModelError, match=r"^The model can run none of the plans\. painters \(\d+\): "):
        filter_runnable(stack, parallel)
    kept, left_out = filter_runnable(stack, parallel[1:])  # no comparison with the original model
    assert (kept, len(left_out)) == ((), 1)


def test_without_the_import_the_error_says_what_to_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ElcForMaskedLM(ElcConfig.of_size("tiny", vocab_size=40)).save_pretrained(tmp_path)
    from transformers import CONFIG_MAPPING

    monkeypatch.delitem(CONFIG_MAPPING._extra_content, ElcConfig.model_type)
    with pytest.raises(ModelError, match="is a model of layerwise's own architecture"):
        layerwise.load(tmp_path)


MIXING = ("elc", "normalized", "weighted-output", "denseformer")
IDS = torch.randint(5, 40, (2, 9), generator=torch.Generator().manual_seed(0))


def tiny(variant: str) -> ElcForMaskedLM:
    torch.manual_seed(0)
    return ElcForMaskedLM(small_config(variant)).eval()


def logits_with(model: ElcForMaskedLM) -> Tensor:
    with torch.no_grad():
        found = model(input_ids=IDS).logits
    assert isinstance(found, Tensor)
    return found


@pytest.mark.parametrize("variant", MIXING)
def test_the_wiring_is_the_layer_weights(variant: str) -> None:
    model = tiny(variant)
    weights = model.layer_weights()
    wired = ElcWiring(model)
    torch.testing.assert_close(torch.tensor(wired.edges().matrix()), weights.detach())
    before = logits_with(model)
    wired.set_edges(wired.edges())
    torch.testing.assert_close(logits_with(model), before)
    assert wired.renormalizes == (variant != "denseformer")


@pytest.mark.parametrize("variant", MIXING)
def test_edges_are_cut_for_good(variant: str, tmp_path: Path) -> None:
    model = tiny(variant)
    wired = ElcWiring(model)
    dense = LayerWeights.of(
        [[1, 0, 0, 0], [0.4, 0.6, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.2, 0.3, 0.4]][: len(wired.readers)], 3
    )
    wired.set_edges(dense)
    whole = logits_with(model)
    sparse = dense.without(Edge(2, 0), Edge(1, 0))
    wired.set_edges(sparse)
    cut = logits_with(model)
    assert not torch.allclose(cut, whole, atol=1e-3)
    weights = model.layer_weights()
    assert not weights.detach()[[1, 2], 0].any()
    torch.testing.assert_close(weights.detach(), torch.tensor(sparse.matrix()))
    model.save_pretrained(tmp_path)
    again = ElcForMaskedLM.from_pretrained(tmp_path).eval()
    assert torch.equal(logits_with(realigned(again)), cut)
    assert set(ElcWiring(again).edges()) == set(sparse)


def test_a_cut_edge_of_a_softmax_stays_cut_in_training() -> None:
    model = tiny("elc").train()
    wired = ElcWiring(model)
    wired.set_edges(wired.edges().without(Edge(2, 1)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        torch.autograd.backward(model(input_ids=IDS, labels=IDS).loss)
        optimizer.step()
    after = wired.edges()
    assert (Edge(2, 1) in set(after), len(after)) == (False, 5)
    assert all(sum(row) == pytest.approx(1.0) for row in after.matrix())


def test_wirings_of_another_model_are_refused() -> None:
    with pytest.raises(ModelError, match="variant ltg has no layer weights"):
        ElcWiring(tiny("ltg"))
    with pytest.raises(PlanError, match="the layer weights must have 3 layers and 3 rows"):
        ElcWiring(tiny("elc")).set_edges(LayerWeights.identity(4))
    with pytest.raises(PlanError, match="outputs of a softmax, so they must not be negative"):
        ElcWiring(tiny("elc")).set_edges(LayerWeights.of([[1, 0, 0], [-0.5, 1.5, 0], [0, 0, 1]], 3))
    with pytest.raises(ModelError, match="the variant must be ltg"):
        rewired(tiny("elc"))


@pytest.mark.parametrize("plan", ["0-2", "0 2", "1-2", "1"])
@torch.no_grad()
def test_new_weights_change_nothing_yet(plan: str) -> None:
    model = tiny("ltg")
    one, other = (load(each).logits(Plan.parse(plan), input_ids=IDS) for each in (model, rewired(model)))
    assert torch.equal(one, other)


@pytest.mark.parametrize("training", [False, True])
def test_new_weights_can_learn(training: bool) -> None:
    model = rewired(tiny("ltg")).train(training)
    model(input_ids=IDS, labels=IDS).loss.backward()
    scalars = {name: each.grad for name, each in model.named_parameters() if name.endswith(".scalars")}
    assert len(scalars) == 3
    for gradient in scalars.values():
        # The norm after the output ignores the scale of the state it reads.
        assert bool((gradient[:-1].abs() > 1e-6).all())
