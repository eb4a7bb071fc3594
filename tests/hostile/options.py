"""Bad options: values out of range, empty values, and options that nothing reads."""

from pathlib import Path

from hostile import runs
from hostile.case import Case, Says
from hostile.material import model_and_texts

SWEEP = ("sweep", "model", "--text", "texts", "--run", "run")
DIAGNOSE = ("diagnose", "model", "--text", "texts", "--run", "run")
TRAIN = ("train", "robust", "layershuffle", "--model", "demo-vit", "--run", "run")
ELC = ("train", "elc", "--run", "run")
GROWTH = ("train", "growth", "--run", "run")
EVALUATE = ("evaluate", "demo", "--run", "run")

BOUNDS = "must be at least"
FINITE = "must be finite"
EMPTY = "must not be empty"
LARGE = "must be at most"
NOTHING = "has no effect"
ARGUMENT = "transformers"
LONG = "x" * 5000

VALUES: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (SWEEP, "--tokens", "0", BOUNDS),
    (SWEEP, "--tokens", "1" + "0" * 400, LARGE),
    (SWEEP, "--tokens", "1.5", "must be all or a whole number"),
    (SWEEP, "--batch-tokens", "1" + "0" * 30, LARGE),
    (SWEEP, "--seed", "9" * 5000, "must be a whole number"),
    (("sweep", "model", "--run", "run"), "--text", "", "--text must not be empty"),
    (SWEEP, "--device", "cpu:x", "--device must be one of auto"),
    (SWEEP, "--task-folder", "texts", "--task-folder requires --tasks"),
    (DIAGNOSE, "--min-effect", "nan", FINITE),
    (DIAGNOSE, "--parts", "", "--parts must contain at least one of"),
    (("train", "robust", "retrained-" + "9" * 5000, *TRAIN[3:]), "--seeds", "1", "unknown training method"),
    (TRAIN, "--epochs", "0", "epochs must be above 0"),
    (TRAIN, "--epochs", "1e12", "epochs must be above 0 and at most"),
    (TRAIN, "--learning-rate", "-1e-3", "learning_rate must be above 0"),
    (TRAIN, "--set", "foo=1", "unknown training argument 'foo'"),
    (TRAIN, "--set", "learning_rate=NaN", "learning_rate must be"),
    (TRAIN, "--set", "seed=" + "9" * 5000, "seed must be"),
    (TRAIN, "--set", "lr_scheduler_type=upwards", ARGUMENT),
    (TRAIN, "--set", "=1", "--set must be NAME=VALUE"),
    (ELC, "--seconds", "0", "--seconds must be above 0"),
    (ELC, "--steps", "9000000000", "steps must be above 0 and at most"),
    (ELC, "--batch-size", "3", "must be a multiple of 4"),
    (GROWTH, "--learning-rates", "-1,1", "--learning-rates"),
    (GROWTH, "--learning-rates", "fast", "--learning-rates"),
    (GROWTH, "--schedules", "everything", "everything"),
    (EVALUATE, "--tasks", "cola", "--tasks requires one of glue"),
    (EVALUATE, "--suite", "", "--suite must not be empty"),
    (("save", "model", "--output", "m", "--plan", "0-3"), "--variant", "a", NOTHING),
    (("save", "model", "model", "--output", "m", "--plan", "a:0"), "--layers", "x", NOTHING),
    (("plan", "0-3"), "--depth", "1000000000", "depth must be"),
    (("plan", "0-3"), "--depth", "1" + "0" * 400, "depth must be"),
    (("save", "convert", "file", "--variant", "elc", "--tokenizer", "t"), "--output", "", EMPTY),
)


def _run(folder: Path) -> None:
    model_and_texts(folder)
    runs.trained()(folder)


OTHERS: tuple[tuple[tuple[str, ...], Says], ...] = (
    (("sweep", "", *SWEEP[2:]), "MODEL must not be empty"),
    (("sweep", "~nobody-here/model", *SWEEP[2:]), "~nobody-here"),
    (("diagnose", LONG, *SWEEP[2:]), "MODEL must be a valid path"),
    ((*EVALUATE, "--suite", LONG), "unknown suite or file"),
    (("sweep", "model", "--text", LONG, "--run", "run"), "--text must be a valid path"),
    (("robustness", "~nobody-here/run"), "~nobody-here"),
    ((*SWEEP, "--tokns", "9"), "Unknown option"),
)

CASES: tuple[Case, ...] = (
    *(Case((*arguments, flag, value), says, model_and_texts) for arguments, flag, value, says in VALUES),
    *(Case(arguments, says, model_and_texts) for arguments, says in OTHERS),
    Case(("robustness", "run", "--tokenizer", "model"), "--tokenizer has no effect on a run", _run),
    Case(("evaluate", "run", "--revision", "main"), "--revision has no effect on a training run", _run),
    Case(("sweeep", "model"), "sweeep"),
    Case(("plan", "0-99999999999999999999"), "at most 5 digits"),
)
