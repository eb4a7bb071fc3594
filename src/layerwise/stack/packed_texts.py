"""Whether a model keeps texts apart that share a row, their positions beginning anew at each.

It is found by behaviour: the second of two texts in a row has the outputs that it has alone. Models that read positions
in another way, or none (states that run on, biases by distance), fail.
"""

from __future__ import annotations

import torch
from torch import nn

from layerwise.stack.inputs import accepted, evaluating, main_tensor
from layerwise.stack.placement import device_of

LENGTHS = (7, 9)
LEAK = 0.01
"""Of what the first text does to the second in one text, how much may be left: far above rounding, far below a leak."""


def keeps_texts_apart(model: nn.Module) -> bool:
    """Whether the model reads a row of packed texts as it reads each alone."""
    vocabulary = model.config.get_text_config().vocab_size  # type: ignore[union-attr, operator]
    ids = torch.randint(0, vocabulary, (1, sum(LENGTHS)), generator=torch.Generator().manual_seed(0))
    ids = ids.to(device_of(model))
    positions = torch.cat([torch.arange(length) for length in LENGTHS])[None].to(ids.device)
    with evaluating(model), torch.inference_mode():
        alone = main_tensor(model(**accepted(model, {"input_ids": ids[:, LENGTHS[0] :]})))
        joined = main_tensor(model(**accepted(model, {"input_ids": ids})))[:, LENGTHS[0] :]
        try:
            rows = main_tensor(model(**accepted(model, {"input_ids": ids, "position_ids": positions})))
        except TypeError:  # it takes no positions
            return False
    left, whole = ((each - alone).abs().max() for each in (rows[:, LENGTHS[0] :], joined))
    return bool(left <= LEAK * whole)
