"""Read and replace the layer weights of an ELC-BERT model.

A softmax weight is 0 if its scalar is minus infinity. It then stays 0 in further training.
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
    """Access to the layer weights of `model`, including those of the output."""

    def __init__(self, model: ElcPreTrainedModel) -> None:
        super().__init__()
        readers = model.base_model.readers()
        if not readers:
            raise ModelError(
                f"the variant {model.config.variant} has no layer weights; use another variant, such as elc, or train "
                "layer weights with `layerwise train robust wiring-identity`"
            )
        self.depth = len(model.base_model.layers)
        self.readers = nn.ModuleList(readers)

    @property
    def renormalizes(self) -> bool:
        return all(reader.softmax for reader in self._rows())

    def edges(self) -> LayerWeights:
        with torch.no_grad():
            weights = [reader().tolist() for reader in self._rows()]
        columns = self.depth + 1
        return LayerWeights.of([row + [0.0] * (columns - len(row)) for row in weights], self.depth)

    @torch.no_grad()
    def set_edges(self, edges: LayerWeights) -> None:
        """Replace the layer weights by those of `edges`. All other weights become 0."""
        rows = self._rows()
        if (edges.depth, len(edges.rows)) != (self.depth, len(rows)):
            raise PlanError(
                f"the layer weights must have {self.depth} layers and {len(rows)} rows, got {edges.depth} and "
                f"{len(edges.rows)}"
            )
        for reader, row in zip(rows, edges.matrix(), strict=True):
            weights = torch.tensor(row[: reader.sources], dtype=torch.float64, device="cpu")
            if reader.softmax and (weights < 0).any():
                raise PlanError(
                    "the layer weights of this model are outputs of a softmax, so they must not be negative; use layer "
                    "weights of a model of the same ELC-BERT variant"
                )
            reader.scalars.copy_(weights.log() if reader.softmax else weights)

    def _rows(self) -> list[MixingWeights]:
        return [reader for reader in self.readers if isinstance(reader, MixingWeights)]


def rewired(model: ElcForMaskedLM) -> ElcForMaskedLM:
    """Convert an `ltg` model to an equivalent `denseformer`, whose layer weights can be trained."""
    if model.config.variant != "ltg":
        raise ModelError(
            f"the variant must be ltg, got {model.config.variant}, which already has layer weights; use it unchanged"
        )
    config = copy.deepcopy(model.config)
    config.variant, config.initialization = "denseformer", "identity"
    copied = ElcForMaskedLM(config)
    weights = {name: tensor for name, tensor in copied.state_dict().items() if "_weights." in name}
    copied.load_state_dict({**weights, **model.state_dict()})
    return copied.eval()
