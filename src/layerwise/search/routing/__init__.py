"""Plans per input: a small router that chooses a plan from the prompt, and what it is worth beside fixed plans.

questions    task sets: prompts, and whether each was answered right under each plan
candidates   the plans that a router chooses among: they begin alike
router       what it reads, its fit, what choosing takes, and a model whose prompts run each under its plan
trial        a router on questions that it was not fitted to, beside its nulls at equal cost, and the verdict
"""

from typing import Literal, get_args

Objective = Literal["accuracy", "nats"]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
