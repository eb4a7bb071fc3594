"""The layer weights of an ELC-BERT as one wiring: read as a value, replaced, cut for good, and given to a backbone.

A weight of a softmax is exactly 0 where its scalar is minus infinity, and stays 0 in further training. An encoder whose
weights can have no gradient frees a state when no later reader has a weight for it.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from layerwise.errors import ModelError, PlanError
from layerwise.models.elc.encoder import ElcForMaskedLM, ElcPreTrainedModel
from layerwise.models.elc.layers import MixingWeights
from layerwise.plan import LayerWeights


class ElcWiring(nn.Module):
    """The readers of `model` in order, the output's last if it is mixed; the weights are the model's own.

    Raises `ModelError` for the variant without layer weights.
    """

    def __init__(self, model: ElcPreTrainedModel) -> None:
        super().__init__()
        readers = model.base_model.readers()
        if not readers:
            raise ModelError(
                f"a model of the variant {model.config.variant} has no layer weights; give one of another variant, "
                "such as elc, or train some into it: layerwise train robust wiring-identity"
            )
        self.depth = len(model.base_model.layers)
        self.readers = nn.ModuleList(readers)

    @property
    def renormalises(self) -> bool:
        return all(reader.softmax for reader in self._rows())

    def edges(self) -> LayerWeights:
        with torch.no_grad():
            weights = [reader().tolist() for reader in self._rows()]
        columns = self.depth + 1
        return LayerWeights.of([row + [0.0] * (columns - len(row)) for row in weights], self.depth)

    @torch.no_grad()
    def set_edges(self, edges: LayerWeights) -> None:
        """Take the weights of `edges` and no other edge. Raises `PlanError` for a wiring of another shape."""
        rows = self._rows()
        if (edges.depth, len(edges.rows)) != (self.depth, len(rows)):
            raise PlanError(
                f"a wiring of {edges.depth} layers and {len(edges.rows)} readers does not fit a model of {self.depth} "
                f"layers and {len(rows)} readers"
            )
        for reader, row in zip(rows, edges.matrix(), strict=True):
            weights = torch.tensor(row[: reader.sources], dtype=torch.float64, device="cpu")
            if reader.softmax and (weights < 0).any():
                raise PlanError("weights of a softmax are not negative: this wiring is of another variant")
            reader.scalars.copy_(weights.log() if reader.softmax else weights)

    def _rows(self) -> list[MixingWeights]:
        return [reader for reader in self.readers if isinstance(reader, MixingWeights)]


def rewired(model: ElcForMaskedLM) -> ElcForMaskedLM:
    """Return the `denseformer` that computes what `model`, an `ltg`, does; fine-tuning can learn weights from there.

    Raises `ModelError` for a model that has layer weights already.
    """
    if model.config.variant != "ltg":
        raise ModelError(f"the model is of variant {model.config.variant}, which has layer weights; give one of ltg")
    config = copy.deepcopy(model.config)
    config.variant, config.initialisation = "denseformer", "identity"
    copied = ElcForMaskedLM(config)
    weights = {name: tensor for name, tensor in copied.state_dict().items() if "_weights." in name}
    copied.load_state_dict({**weights, **model.state_dict()})
    return copied.eval()
