"""Tensors around the blocks with an entry for every layer follow the plan, in place and in saved checkpoints."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import EsmForMaskedLM

from layerwise.checkpoint import save
from layerwise.errors import UnsupportedModel
from layerwise.plan import Plan
from layerwise.stack import load
from layerwise.stack.inputs import example_inputs
from layerwise.stack.per_layer import per_layer_tensors
from stack.test_inputs import SIDES, SOUND, loud, model_of

ESM = {"position_embedding_type": "rotary", "mask_token_id": 3, "attn_implementation": "eager"}
IDS = torch.tensor([[0, 5, 6, 7, 8, 9, 10, 2]])
PLANS = ("1 0 2", "0 2", "2 1 1 0")
HEADS: dict[str, tuple[dict[str, Any], str]] = {
    "EsmForMaskedLM": (ESM, "esm.encoder.layer"),
    "Wav2Vec2ForSequenceClassification": ({**SOUND, "use_weighted_layer_sum": True}, "wav2vec2.encoder.layers"),
    "WhisperForAudioClassification": ({**SIDES, "use_weighted_layer_sum": True}, "encoder.layers"),
}


def outputs(model: Any) -> Tensor:
    if isinstance(model, EsmForMaskedLM):
        return model.esm.predict_contacts(IDS, torch.ones_like(IDS))
    inputs = example_inputs(model)
    assert inputs is not None
    return model(**inputs).logits


def built(name: str) -> Any:
    model = loud(model_of(name, HEADS[name][0]))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.normal_()
    return model


def by_hand(name: str, model: Any, order: Sequence[int]) -> Any:
    """A model of the class with as many layers as there are visits, filled tensor by tensor."""
    settings, path = HEADS[name]
    counts = {key: len(order) for key in ("num_hidden_layers", "encoder_layers")}
    made, own = model_of(name, {**settings, **counts}), model.state_dict()
    for key, value in made.state_dict().items():
        if key.startswith(f"{path}."):
            slot, _, rest = key.removeprefix(f"{path}.").partition(".")
            value.copy_(own[f"{path}.{order[int(slot)]}.{rest}"])
        elif key == "layer_weights":
            value.copy_(own[key][[0, *(layer + 1 for layer in order)]])
        elif key.endswith("regression.weight"):
            value.copy_(own[key].view(1, 3, 4)[:, list(order)].reshape(1, -1))
        else:
            value.copy_(own[key])
    return made


@pytest.mark.parametrize("name", HEADS)
@torch.no_grad()
def test_a_plan_in_place_is_a_model_built_for_it(name: str) -> None:
    model = built(name)
    stack, before, own = load(model), list(model.state_dict()), outputs(model)
    (found,) = per_layer_tensors(model, stack.path)
    parameter = dict(model.named_parameters())[found]
    for text in PLANS:
        plan = Plan.parse(text)
        expected = outputs(by_hand(name, model, plan.order()))
        with stack.under(plan):
            torch.testing.assert_close(outputs(model), expected, rtol=1e-4, atol=1e-5)
            assert list(model.state_dict()) == before
            assert dict(model.named_parameters())[found] is parameter
        assert (expected - own).abs().max() > 1e-4
    assert torch.equal(outputs(model), own)


@torch.no_grad()
def test_columns_of_a_contact_head_are_saved_in_the_order_of_the_plan(tmp_path: Path) -> None:
    model = built("EsmForMaskedLM")
    model.save_pretrained(tmp_path / "own")
    for number, source in enumerate((load(model), str(tmp_path / "own"))):
        for text in PLANS:
            folder = tmp_path / f"{number} {text}"
            save(source, text, folder)
            saved = EsmForMaskedLM.from_pretrained(folder, attn_implementation="eager").eval()
            expected = by_hand("EsmForMaskedLM", model, Plan.parse(text).order())
            torch.testing.assert_close(outputs(saved), outputs(expected))


def test_weights_of_layers_are_trained_in_place_and_named_where_a_plan_cannot_run_step_by_step() -> None:
    model = built("Wav2Vec2ForSequenceClassification")
    stack = load(model)
    with stack.under("2 0"):
        outputs(model).sum().backward()
    assert (model.layer_weights.grad != 0).tolist() == [True, True, False, True]
    with pytest.raises(UnsupportedModel, match="layer_weights may weigh what every layer returns"):
        stack.logits("2 0", **(example_inputs(model) or {}))
