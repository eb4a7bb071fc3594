"""A trained backbone given layer weights that change nothing yet: what weights in fine-tuning alone begin from."""

from __future__ import annotations

import copy

from layerwise.errors import ModelError
from layerwise.models.elc.heads import ElcForMaskedLM


def rewired(model: ElcForMaskedLM) -> ElcForMaskedLM:
    """The model of variant `denseformer` that computes what `model`, of variant `ltg`, computes.

    Its layer weights are the identity: every layer reads the state before it alone. Raises `ModelError` for a model
    that has layer weights already.
    """
    if model.config.variant != "ltg":
        raise ModelError(f"the model is of variant {model.config.variant}, which has layer weights; give one of ltg")
    config = copy.deepcopy(model.config)
    config.variant, config.initialisation = "denseformer", "identity"
    copied = ElcForMaskedLM(config)
    weights = {name: tensor for name, tensor in copied.state_dict().items() if "_weights." in name}
    copied.load_state_dict({**weights, **model.state_dict()})
    return copied.eval()
