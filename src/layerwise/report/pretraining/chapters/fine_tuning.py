"""Layer weights in pretraining, in fine-tuning, in both, in neither: what they score, and how soon they learn."""

from __future__ import annotations

from layerwise.report.evidence import Evidence
from layerwise.report.page.answers import answers
from layerwise.report.page.chapter import Chapter, Heading, folded, lead, note
from layerwise.report.pretraining.fine_tuning import WEIGHTS_IN, fine_tuning_findings, fine_tuning_rows

HEADING = Heading("fine-tuning", "Weights in pretraining and in fine-tuning", "Fine-tuning")


def fine_tuning(evidence: Evidence) -> Chapter:
    """The finding, a table of the four arms, and one of all arms."""
    run = evidence.pretraining
    four, every = fine_tuning_rows(run, WEIGHTS_IN), fine_tuning_rows(run, run.arms)
    if not every.body:
        return HEADING.missing(
            "No learning curves of fine-tuning are part of this run (tuning_convergence): layerwise study "
            "layer-weights --glue FOLDER, with --tuning-evals above 0."
        )
    body = (
        lead("The pretrained models, fine-tuned with layer weights and without, and how soon each learns a task."),
        answers(tuple(fine_tuning_findings(run))),
        four.html(),
        note(
            "The score is of test examples, its interval over them and over seeds. Steps and seconds are those to one"
            " score on the selection set, by default the highest that every fine-tuning of the backbone reaches; beside"
            " them the ratio to the backbone's, paired by seed. With ≥ a fine-tuning never reached it, and"
            " the number is a lower bound. Seconds are the steps times the median time of one, without evaluations."
        ),
        *((folded("Every arm", every.html()),) if len(every.body) > len(four.body) else ()),
    )
    return HEADING.chapter(body, ())
