"""The layer weights of an ELC-BERT as one wiring: read, replaced, cut, and unchanged by saving."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from layerwise.errors import ModelError, PlanError
from layerwise.models import ElcForMaskedLM
from layerwise.models.elc.wiring import ElcWiring, rewired
from layerwise.plan import Edge, LayerWeights, Plan
from layerwise.stack import load
from models.published import small_config
from rounding import realigned

MIXING = ("elc", "normalized", "weighted-output", "denseformer")
IDS = torch.randint(5, 40, (2, 9), generator=torch.Generator().manual_seed(0))


def tiny(variant: str) -> ElcForMaskedLM:
    torch.manual_seed(0)
    return ElcForMaskedLM(small_config(variant)).eval()


def logits(model: ElcForMaskedLM) -> Tensor:
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
    before = logits(model)
    wired.set_edges(wired.edges())
    torch.testing.assert_close(logits(model), before)
    assert wired.renormalises == (variant != "denseformer")


@pytest.mark.parametrize("variant", MIXING)
def test_edges_are_cut_for_good(variant: str, tmp_path: Path) -> None:
    model = tiny(variant)
    wired = ElcWiring(model)
    dense = LayerWeights.of(
        [[1, 0, 0, 0], [0.4, 0.6, 0, 0], [0.2, 0.3, 0.5, 0], [0.1, 0.2, 0.3, 0.4]][: len(wired.readers)], 3
    )
    wired.set_edges(dense)
    whole = logits(model)
    sparse = dense.without(Edge(2, 0), Edge(1, 0))
    wired.set_edges(sparse)
    cut = logits(model)
    assert not torch.allclose(cut, whole, atol=1e-3)
    weights = model.layer_weights()
    assert not weights.detach()[[1, 2], 0].any()
    torch.testing.assert_close(weights.detach(), torch.tensor(sparse.matrix()))
    model.save_pretrained(tmp_path)
    again = ElcForMaskedLM.from_pretrained(tmp_path).eval()
    assert torch.equal(logits(realigned(again)), cut)
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


def test_what_is_no_wiring_of_the_model_is_refused() -> None:
    with pytest.raises(ModelError, match="variant ltg has no layer weights"):
        ElcWiring(tiny("ltg"))
    with pytest.raises(PlanError, match="4 layers and 4 readers does not fit a model of 3 layers and 3 readers"):
        ElcWiring(tiny("elc")).set_edges(LayerWeights.identity(4))
    with pytest.raises(PlanError, match="of another variant"):
        ElcWiring(tiny("elc")).set_edges(LayerWeights.of([[1, 0, 0], [-0.5, 1.5, 0], [0, 0, 1]], 3))
    with pytest.raises(ModelError, match="give one of ltg"):
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
