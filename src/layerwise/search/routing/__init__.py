"""Plans per input: a small router that chooses a plan from the prompt, and what it is worth beside fixed plans.

questions    task sets: prompts, and whether each was answered right under each plan
candidates   the plans that a router chooses among: they begin alike
features     what a router reads: the state of a prompt where the candidates part
router       the router itself: ridge regression from features to scores, and a price for every layer
mixture      fixed plans and oracles at the same mean layers
trial        a router on questions that it was not fitted to, beside its nulls
verdict      what may be concluded from that
router_time  what choosing takes, in layers
routed       a model whose prompts are answered each under its own plan, batched by plan
"""
