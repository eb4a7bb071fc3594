"""Growth training: a model is trained in phases, each on the layers that its schedule says.

The schedule is a value of `layerwise.plan.schedule`; here it is carried out and its cost is measured. The arms of a
study and the rows of its trainings are made in `layerwise.studies.train_growth`.

    step_schedule         what runs, what learns and at what rate, by the step alone
    runner                the phases, in the Hugging Face Trainer
    random_init           a decoder with random weights, made from a configuration
"""
