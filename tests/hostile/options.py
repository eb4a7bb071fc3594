"""Bad input that concerns options: values out of range, empty texts, and options that nothing reads."""

from __future__ import annotations

from pathlib import Path

from hostile import runs
from hostile.case import Case
from hostile.material import model_and_texts

SWEEP = ("sweep", "model", "--text", "texts", "--run", "run")
DIAGNOSE = ("diagnose", "model", "--text", "texts", "--run", "run")
TRAIN = ("train", "layershuffle", "--model", "demo-vit", "--run", "run")
ELC = ("train", "elc", "--run", "run")
GROWTH = ("train", "growth", "--run", "run")
STUDY = ("study", "growth", "--run", "run")
WEIGHTS = ("study", "layer-weights", "--run", "run")
EVALUATE = ("evaluate", "demo", "--run", "run")
ROBUSTNESS = ("robustness", "demo-vit", "--run", "run")
WIRING = ("wiring", "model", "--run", "run")
MERGE = ("merge", "model", "--run", "run")

BELOW = "greater than or equal to"
ABOVE = "less than or equal to"
FINITE = "takes a finite number"
EMPTY = "was given an empty text"
LARGE = "takes a number up to"
NOTHING = "does nothing here"
ARGUMENT = "transformers"

VALUES: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (SWEEP, "--tokens", "0", BELOW),
    (SWEEP, "--tokens", "-1", BELOW),
    (SWEEP, "--tokens", "1" + "0" * 400, LARGE),
    (SWEEP, "--tokens", "1.5", "valid integer"),
    (SWEEP, "--length", "1", BELOW),
    (SWEEP, "--batch-tokens", "0", BELOW),
    (SWEEP, "--batch-tokens", "1" + "0" * 30, LARGE),
    (SWEEP, "--seed", "-1", BELOW),
    (SWEEP, "--seed", "4294967296", ABOVE),
    (SWEEP, "--seed", "9" * 5000, "exceeded maximum size"),
    (SWEEP, "--text", "", EMPTY),
    (SWEEP, "--run", "", EMPTY),
    (SWEEP, "--tokenizer", "", EMPTY),
    (SWEEP, "--layers", "", EMPTY),
    (SWEEP, "--device", "", EMPTY),
    (SWEEP, "--device", "cpu:x", "is not known"),
    (SWEEP, "--device", "cpu:-7", "is not known"),
    (SWEEP, "--dtype", "", EMPTY),
    (SWEEP, "--task-limit", "3", NOTHING),
    (SWEEP, "--task-folder", "texts", NOTHING),
    (DIAGNOSE, "--margin", "nan", FINITE),
    (DIAGNOSE, "--margin", "-1", "a margin of -1.0 nats"),
    (DIAGNOSE, "--margin", "inf", FINITE),
    (DIAGNOSE, "--budget", "0", BELOW),
    (DIAGNOSE, "--curve-tokens", "-5", BELOW),
    (DIAGNOSE, "--seed", "-1", BELOW),
    (DIAGNOSE, "--levels", "4", NOTHING),
    (DIAGNOSE, "--spend", "0.5", NOTHING),
    (DIAGNOSE, "--parts", "", EMPTY),
    ((*DIAGNOSE, "--parts", "deltas"), "--budget", "9", NOTHING),
    ((*DIAGNOSE, "--parts", "deltas"), "--curve-tokens", "9", NOTHING),
    ((*DIAGNOSE, "--parts", "deltas"), "--thorough", "", "--thorough does nothing here"),
    ((*DIAGNOSE, "--emit-schedule", "s.yaml"), "--spend", "nan", FINITE),
    ((*DIAGNOSE, "--emit-schedule", "s.yaml"), "--spend", "1.5", "a spend is a share"),
    ((*DIAGNOSE, "--emit-schedule", "s.yaml"), "--levels", "1000000000", ABOVE),
    (TRAIN, "--drop", "2", NOTHING),
    (TRAIN, "--drop", "0.5", NOTHING),
    (TRAIN, "--position-table", "shared", NOTHING),
    (TRAIN, "--prediction-loss", "mean", NOTHING),
    (TRAIN, "--prediction-reads", "mean", NOTHING),
    (("train", "layerdrop", *TRAIN[2:]), "--drop", "2", "is a probability from 0"),
    (("train", "layerdrop", *TRAIN[2:]), "--drop", "-0.1", "is a probability from 0"),
    (("train", "layerdrop", *TRAIN[2:]), "--drop", "nan", FINITE),
    (("train", "layerdrop", *TRAIN[2:]), "--reach", "2", NOTHING),
    (("train", "sequential", *TRAIN[2:]), "--skipping", "apart", NOTHING),
    (("train", "baseline", *TRAIN[2:]), "--checks", "3", NOTHING),
    (("train", "retrained-" + "9" * 5000, *TRAIN[2:]), "--seeds", "1", "there is no training method"),
    (TRAIN, "--reach", "0", BELOW),
    (TRAIN, "--epochs", "nan", FINITE),
    (TRAIN, "--epochs", "inf", FINITE),
    (TRAIN, "--epochs", "1e400", FINITE),
    (TRAIN, "--epochs", "0", "epochs is 0"),
    (TRAIN, "--epochs", "-1", "epochs is -1"),
    (TRAIN, "--epochs", "1e12", "epochs is 1"),
    (TRAIN, "--learning-rate", "nan", FINITE),
    (TRAIN, "--learning-rate", "-1e-3", "learning_rate is -0.001"),
    (TRAIN, "--batch", "0", BELOW),
    (TRAIN, "--batch", "9999999999", "batch is 9999999999"),
    (TRAIN, "--accumulation", "0", BELOW),
    (TRAIN, "--seeds", "0", BELOW),
    (TRAIN, "--seeds", "1000000000", ABOVE),
    (TRAIN, "--checks", "0", BELOW),
    (TRAIN, "--seed", "-1", BELOW),
    (TRAIN, "--limit", "0", BELOW),
    (TRAIN, "--set", "foo=1", "no training argument 'foo'"),
    (TRAIN, "--set", "learning_rat=1", "did you mean learning_rate"),
    (TRAIN, "--set", "learning_rate=abc", "where a number belongs"),
    (TRAIN, "--set", "learning_rate=NaN", "where a number belongs"),
    (TRAIN, "--set", "seed=1.5", "where a whole number belongs"),
    (TRAIN, "--set", "seed=" + "9" * 5000, "where a whole number belongs"),
    (TRAIN, "--set", "fp16=maybe", "where true or false belongs"),
    (TRAIN, "--set", "optim=sgdd", ARGUMENT),
    (TRAIN, "--set", "lr_scheduler_type=upwards", ARGUMENT),
    (TRAIN, "--set", "output_dir=elsewhere", "name the folder of the run with --run"),
    (TRAIN, "--set", "=1", "--set takes NAME=VALUE"),
    (TRAIN, "--set", "", "--set takes NAME=VALUE"),
    (ELC, "--seconds", "nan", FINITE),
    (ELC, "--seconds", "0", "seconds is 0"),
    (ELC, "--seconds", "-5", "seconds is -5"),
    (ELC, "--steps", "0", BELOW),
    (ELC, "--steps", "9000000000", "steps is 9000000000"),
    (ELC, "--batch", "3", "write a multiple of 4"),
    (ELC, "--vocabulary", "0", BELOW),
    (ELC, "--vocabulary", "1000000000", ABOVE),
    (ELC, "--epochs", "-1", "epochs is -1"),
    (ELC, "--set", "foo=1", "no training argument 'foo'"),
    ((*ELC, "--variants", "ltg"), "--initialisation", "zero", NOTHING),
    (GROWTH, "--passes", "nan", FINITE),
    (GROWTH, "--passes", "-1", "write a number above 0"),
    (GROWTH, "--passes", "0", "write a number above 0"),
    (GROWTH, "--epochs", "0", "epochs is 0"),
    (GROWTH, "--set", "foo=1", "no training argument 'foo'"),
    (("train", "growth", "--explain"), "--run", "run", NOTHING),
    ((*GROWTH, "--schedule", "uniform"), "--equal", "tokens", NOTHING),
    (STUDY, "--rates", "nan", "--rates takes numbers above 0"),
    (STUDY, "--rates", "0", "--rates takes numbers above 0"),
    (STUDY, "--rates", "-1,1", "--rates takes numbers above 0"),
    (STUDY, "--rates", "1e400", "--rates takes numbers above 0"),
    (STUDY, "--rates", "fast", "--rates takes numbers above 0"),
    (STUDY, "--pilots", "0", BELOW),
    (STUDY, "--arms", "everything", "everything"),
    (WEIGHTS, "--steps", "-1", BELOW),
    (WEIGHTS, "--learning-rate", "inf", FINITE),
    (WEIGHTS, "--set", "foo=1", "no training argument 'foo'"),
    (EVALUATE, "--temperature", "0", "a temperature of 0.0"),
    (EVALUATE, "--temperature", "-1", "a temperature of -1.0"),
    (EVALUATE, "--temperature", "nan", FINITE),
    (EVALUATE, "--seeds", "2", NOTHING),
    (EVALUATE, "--password", "word", NOTHING),
    (EVALUATE, "--data", "texts", NOTHING),
    (EVALUATE, "--tasks", "cola", "--tasks chooses among"),
    (EVALUATE, "--limit", "0", BELOW),
    (EVALUATE, "--suite", "", EMPTY),
    (EVALUATE, "--suite", ",", "--suite names nothing"),
    ((*EVALUATE, "--suite", "msgs-ours"), "--temperature", "2", NOTHING),
    (ROBUSTNESS, "--orders", "0", BELOW),
    (ROBUSTNESS, "--orders", "1000000000", ABOVE),
    (ROBUSTNESS, "--draws", "-1", BELOW),
    (ROBUSTNESS, "--dtype", "float64", NOTHING),
    (("robustness", "model", "--run", "run"), "--seeds", "2", NOTHING),
    (WIRING, "--keep", "nan", FINITE),
    (WIRING, "--keep", "0", "share of edges to keep"),
    (WIRING, "--keep", "1.5", "share of edges to keep"),
    (WIRING, "--tolerance", "-1", "the rise that is tolerated"),
    (WIRING, "--tolerance", "nan", FINITE),
    (WIRING, "--rounds", "3", NOTHING),
    ((*WIRING, "--keep", "0.5"), "--rounds", "1000000000", ABOVE),
    (MERGE, "--draws", "0", BELOW),
    (MERGE, "--draws", "1000000000", ABOVE),
    (("merge", "model", "--save", "m", "--plan", "0-3"), "--limit", "3", NOTHING),
    (("merge", "model", "--save", "m", "--plan", "0-3"), "--seed", "3", NOTHING),
    (("plan", "0-3"), "--depth", "0", BELOW),
    (("plan", "0-3"), "--depth", "1000000000", "a depth is"),
    (("plan", "0-3"), "--depth", "1" + "0" * 400, LARGE),
    (("convert", "file", "--variant", "elc", "--tokenizer", "t", "--out", "o"), "--heads", "0", BELOW),
    (("convert", "file", "--variant", "elc", "--tokenizer", "t"), "--out", "", EMPTY),
)


def _run(folder: Path) -> None:
    model_and_texts(folder)
    runs.trained()(folder)


def _shown(arguments: tuple[str, ...], flag: str, value: str) -> str:
    return f"{' '.join(arguments[:2])[:30]} {flag} {value[:20]!r}{'...' if len(value) > 20 else ''}"


OTHERS: tuple[Case, ...] = (
    Case("a model that is nothing", ("sweep", "", "--text", "texts", "--run", "run"), ("MODEL was given an empty",),
         model_and_texts),
    Case("a model of a user who is not there", ("sweep", "~nobody-here/model", "--text", "texts", "--run", "run"),
         ("~nobody-here",), model_and_texts),
    Case("a model with a name that is too long", ("diagnose", "x" * 5000, "--text", "texts", "--run", "run"),
         ("MODEL was given", "cannot be looked up"), model_and_texts),
    Case("a suite with a name that is too long", ("evaluate", "demo", "--run", "run", "--suite", "x" * 5000),
         ("there is no suite and no file",), model_and_texts),
    Case("a text with a name that is too long", ("sweep", "model", "--text", "x" * 5000, "--run", "run"),
         ("--text was given", "cannot be looked up"), model_and_texts),
    Case("a run of a user who is not there", ("robustness", "~nobody-here/run"), ("~nobody-here",), model_and_texts),
    Case("robustness of a run with a tokenizer", ("robustness", "run", "--tokenizer", "model"), (NOTHING,), _run),
    Case("an evaluation of a run with a revision", ("evaluate", "run", "--revision", "main"), (NOTHING,), _run),
    Case("an option that there is not", (*SWEEP, "--tokns", "9"), ("No such option",), model_and_texts),
    Case("a verb that there is not", ("sweeep", "model"), ("sweeep",), None),
    Case("a number of layers beyond all", ("plan", "0-99999999999999999999"), ("at most 5 digits",), None),
)  # fmt: skip

CASES: tuple[Case, ...] = (
    *(
        Case(
            f"{_shown(arguments, flag, value)} ({number})",
            (*arguments, flag) if flag == "--thorough" else (*arguments, flag, value),
            (says,),
            model_and_texts,
        )
        for number, (arguments, flag, value, says) in enumerate(VALUES)
    ),
    *OTHERS,
)
