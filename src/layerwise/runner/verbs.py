"""The verbs in Python: one function per experiment, with the names and the options of the command line.

    result = layerwise.sweep(stack, corpus, families=("painters",))
    result.rows, result.table(), result.report("page.html")

A model is a `Stack`, a model of transformers, a torch module or a name; a text is a `Corpus`, a list of strings or a
path. The other arguments are the fields of the experiment's configuration. Without a `reporter` the terminal or the
notebook shows the progress; `Silent()` shows nothing. Rows go into a run folder (`run`), and the same call resumes.
Signatures and docstrings are made from the configuration, as the help of the command line is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin, get_type_hints

from layerwise.errors import DataError, ModelError, OptionError
from layerwise.runner.catalogue import experiment
from layerwise.runner.experiment import Experiment, Inputs
from layerwise.runner.files import ExperimentFile
from layerwise.runner.option import configured, options_of, own_first, split_commas
from layerwise.runner.reporter import Reporter
from layerwise.runner.result import Result, SearchResult
from layerwise.runner.spelling import in_python, refusals
from layerwise.runner.verb import VerbCall

if TYPE_CHECKING:
    from layerwise.data.text.corpus import Corpus
    from layerwise.stack import Stack

R = TypeVar("R", bound=Result)

WITH_BATCHES = ("sweep",)
"""The verbs that evaluate batches of the caller's own."""

OWN = {
    "batches": ("Iterable[Mapping[str, Tensor]] | None", "Batches to evaluate in place of a text (own_batches)."),
    "metric": ("Callable[[Any, Mapping[str, Tensor]], Tensor] | None", "Number per row, lower is better, of batches."),
}
"""The arguments that only Python has, with their annotation and help."""

OPENED = {"model": "Stack | torch.nn.Module | str | Path", "text": "Corpus | Sequence[str] | str | Path | None"}
"""What stands in the signatures for options that may be given as opened objects."""


def _function(verb: str, inputs: str, result: Callable[[Path], R]) -> Callable[..., R]:
    kind, order = experiment(verb), inputs.split()

    def call(*arguments: object, reporter: Reporter | None = None, **options: object) -> R:
        if len(arguments) > len(order):
            raise TypeError(f"{name}() takes at most {len(order)} arguments by position ({', '.join(order)})")
        return result(perform_verb(verb, {**dict(zip(order, arguments, strict=False)), **options}, reporter).folder)

    name = call.__name__ = call.__qualname__ = verb.replace(" ", "_").replace("-", "_")
    call.__doc__ = _documentation(kind)
    call.__signature__ = _signature(kind, order, result)  # type: ignore[attr-defined]
    return call


def _signature(kind: type[Experiment], order: Sequence[str], result: object) -> inspect.Signature:
    hints, options = get_type_hints(kind), options_of(kind)
    parameters = []
    for name in (*order, *(each for each in own_first(kind) if each not in order)):
        default = options[name][0].default
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD if name in order else inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is MISSING and name not in order[1:] else _none(default),
                annotation=OPENED.get(name, _widened(hints[name])),
            )
        )
    for name, (annotation, _) in OWN.items() if kind.VERB in WITH_BATCHES else ():
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
    parameters.append(
        inspect.Parameter("reporter", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="Reporter | None")
    )
    return inspect.Signature(parameters, return_annotation=result)


def _none(default: object) -> object:
    return None if default is MISSING else default


def _widened(hint: Any) -> Any:
    if get_origin(hint) is tuple:
        return Sequence[get_args(hint)[0]]  # type: ignore[misc]
    return hint | str if Path in (hint, *get_args(hint)) else hint


def _documentation(kind: type[Experiment]) -> str:
    text = inspect.cleandoc(kind.__doc__ or "")
    options = [f"    {name}: {options_of(kind)[name][1].help}" for name in own_first(kind)]
    options += [f"    {name}: {help}" for name, (_, help) in OWN.items() if kind.VERB in WITH_BATCHES]
    ending = "Raises a `LayerwiseError` for options, models and data that cannot be."
    return in_python(kind, "\n".join([text, "", "Options:", *options, "", ending]))


search = _function("search", "model text budget", SearchResult)


def run(source: str | Path, *stages: str, reporter: Reporter | None = None, **options: object) -> dict[str, Result]:
    """Carry out the experiments of a recipe, a YAML file or a run folder, and return the results by stage.

        layerwise.run("painters", "curves", model="demo", families=["painters"])

    `options` replace those of the file in every stage that has them. Raises `OptionError` if no stage has one.
    """
    from layerwise.runner.perform import perform
    from layerwise.runner.terminal import Terminal

    file = ExperimentFile.read(source).chosen(stages)
    kinds = file.kinds()
    for name in options:
        if not any(name in options_of(kind) for kind in kinds.values()):
            raise OptionError(f"no stage of {file.name} has an option {name!r}")
    given = {
        stage: {name: _plain(kind, name, value) for name, value in options.items() if name in options_of(kind)}
        for stage, kind in kinds.items()
    }
    results = {}
    with Terminal() as terminal:
        for stage in file.configurations(given):
            if isinstance(stage.config, VerbCall):
                results[stage.name] = stage.config.verb.function(**stage.config.options, reporter=reporter or terminal)
                continue
            if not isinstance(stage.config, Experiment):
                raise OptionError(f"{stage.config.VERB} keeps no run; write it on the command line")
            results[stage.name] = perform(stage.config, reporter or terminal)
    return results


def perform_verb(verb: str, options: Mapping[str, object], reporter: Reporter | None) -> Result:
    """Perform the experiment of a verb on opened objects, names or paths; errors use the names of Python."""
    from layerwise.runner.perform import perform
    from layerwise.runner.terminal import Terminal

    kind = experiment(verb)
    with refusals(kind, in_python):
        rest = dict(options)
        model, text = rest.pop("model", None), rest.pop("text", None)
        own = {name: rest.pop(name, None) for name in OWN if verb in WITH_BATCHES}
        values = {name: _plain(kind, name, value) for name, value in rest.items()}
        stack = None if model is None or isinstance(model, str | Path) else _stack(model, values.get("tokenizer"))
        corpus = None if text is None or isinstance(text, str | Path) else _corpus(text)
        if model is not None:
            values["model"] = stack.source.name if stack is not None else str(model)
        if text is not None and corpus is None:
            values["text"] = Path(str(text))
        config = configured(kind, values, f"layerwise {verb}")
        opened = Inputs(stack, corpus, **_batches(text, **own))
        if reporter is not None:
            return perform(config, reporter, opened)
        with Terminal() as terminal:
            return perform(config, terminal, opened)


def _batches(text: object, batches: Any = None, metric: Any = None) -> dict[str, Any]:
    if batches is None and metric is not None:
        raise OptionError("metric is computed on batches. Pass batches too.")
    if batches is not None and text is not None:
        raise OptionError("text and batches each say what is evaluated. Pass one of them.")
    return {"batches": batches, "metric": metric}


def _stack(model: object, tokenizer: object) -> Stack:
    """Return a stack, or make one of a module with the named or stored tokenizer; otherwise raise `ModelError`."""
    from torch import nn

    from layerwise.data.text.tokenizer import load_tokenizer
    from layerwise.stack import Stack, load

    if isinstance(model, Stack):
        return model
    if not isinstance(model, nn.Module):
        raise ModelError(
            f"a model is a name, a folder, what layerwise.load returns or a torch module; found {type(model).__name__}"
        )
    source = tokenizer or getattr(getattr(model, "config", None), "_name_or_path", None)
    try:
        beside = load_tokenizer(str(source)) if source else None
    except DataError:
        if tokenizer:
            raise
        beside = None
    return load(model, tokenizer=beside)


def _corpus(text: object) -> Corpus:
    from layerwise.data.text.corpus import Corpus

    if isinstance(text, Corpus):
        return text
    if isinstance(text, list | tuple) and all(isinstance(each, str) for each in text):
        return Corpus.of(text)
    raise DataError(f"a text is a file, a folder, a Corpus or a list of strings; found {type(text).__name__}")


def _plain(kind: type, name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_text(each) for each in value]
    value, option = _text(value), options_of(kind).get(name)
    if isinstance(value, str) and option is not None and get_origin(get_type_hints(kind)[name]) is tuple:
        return [value] if option[1].repeated else list(split_commas(value))
    return value


def _text(value: Any) -> Any:
    from layerwise.plan import Plan
    from layerwise.search.budget import Budget

    is_torch = type(value).__module__ == "torch"
    return str(value).removeprefix("torch.") if is_torch or isinstance(value, Plan | Budget | Path) else value
