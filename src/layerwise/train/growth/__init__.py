"""Growth training: a model is trained in phases, each on the layers that its schedule says.

The schedule is a value of `layerwise.plan.growth`; here it is carried out, paid for and judged.

    schedule_file   schedules in YAML
    timetable       what runs, what learns and at what rate, by the step alone
    growing         the phases, in the Hugging Face Trainer (`trainer`)
    prefix_cache    the states behind a frozen prefix, on disk
    pupil, course   what is trained, its arms, and the rows that their trainings leave
    study           the arms of a study that could say no, and its controls; `conduct` carries it out
"""
