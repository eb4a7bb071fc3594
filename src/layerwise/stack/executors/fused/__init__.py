"""Layers that run as one: `with stack.under(plan, fused=True)`.

Linear layers of a block that read one tensor (queries, keys and values) are one product (`projections`). And the
members of a group `(a|b|c)` read the same hidden state, so their products can be one product. Their weights are laid
out in one storage, of which the model's own parameters become views (`layout`). The first member's own forward then
runs on a batch that holds every member's rows one below the other, with parameters that know each member's weights
(`batched_parameter`): a linear layer becomes one batched product, attention sees more rows, and
whatever does not touch a weight runs as it is. No architecture is named anywhere. That a block may be run so is proved
on a small batch, with a cache and without (`proof`), before a plan is entered.
"""
