"""Fine-tuning settings of published models, compared with their model cards."""

import math

import pytest

from layerwise.data.suites.classification import Labelled, Task
from layerwise.train.fine_tuning import FineTuningConfig, _arguments
from layerwise.train.published_tuning import settings_for


def task(name: str) -> Task:
    sets = [(Labelled(f"{split} a", None, 0), Labelled(f"{split} b", None, 1)) for split in range(3)]
    return Task("glue", name, ("no", "yes"), "accuracy", *sets)


@pytest.mark.parametrize(
    ("name", "rate", "batch", "epochs", "patience", "eval_steps"),
    [
        ("rte", 5e-5, 64, 10, 10, None),
        ("multirc", 5e-5, 64, 10, 10, None),
        ("sst2", 5e-5, 64, 10, 100, 200),
        ("mnli-mm", 5e-5, 64, 10, 100, 500),
        ("control control_raising", 5e-5, 32, 10, 10, None),
        ("control lexical_content_the", 1.5e-5, 32, 3, 3, None),
        ("control main_verb", 5e-6, 32, 10, 10, None),
        ("ambiguous syntactic_category_relative_position", 1e-5, 32, 10, 10, None),
        ("ambiguous main_verb_lexical_content_the", 8e-6, 32, 5, 5, None),
        ("ambiguous main_verb_relative_token_position", 5e-5, 32, 10, 10, None),
        ("ambiguous syntactic_category_lexical_content_the", 5e-5, 32, 10, 10, None),
        ("ambiguous control_raising_lexical_content_the", 5e-7, 32, 10, 10, None),
    ],
)
def test_elc_bert_is_fine_tuned_as_its_model_card_says(
    name: str, rate: float, batch: int, epochs: int, patience: int, eval_steps: int | None
) -> None:
    found = settings_for(task(name), FineTuningConfig(published="elc-bert"))
    assert (*found.learning_rates, found.batch_size, found.epochs) == (rate, batch, epochs)
    assert (found.patience, found.eval_steps, found.schedule) == (patience, eval_steps, "cosine")
    assert (found.warmup, found.weight_decay) == (0.1, 0.1)


def test_given_settings_replace_published_ones_and_reach_the_trainer() -> None:
    given = FineTuningConfig(published="elc-bert", batch_size=8, training_limit=5)
    found = settings_for(task("sst2"), given)
    assert (found.batch_size, found.training_limit, found.epochs) == (8, 5, 10)
    assert settings_for(task("sst2"), FineTuningConfig()) == FineTuningConfig()
    arguments = _arguments("folder", found, 5e-5, 0, "cpu", "accuracy", 80)
    assert (arguments.lr_scheduler_type, arguments.warmup_steps) == ("cosine", math.ceil(0.1 * 10 * 10))
    assert (arguments.eval_strategy, arguments.eval_steps, arguments.save_steps) == ("steps", 200, 200)
