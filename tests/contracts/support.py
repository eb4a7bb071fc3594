"""Write the tables of docs/support.md: `PYTHONPATH=tests python -m contracts.support` (6 minutes)."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import transformers

from contracts import checks, specimen
from contracts.checks import WAYS, Answer, Halves, Way
from contracts.specimen import Refusal, Specimen
from contracts.zoo import POPULAR, REFUSED, SUPPORTED, named
from layerwise.errors import PlanError
from layerwise.plan import Plan
from layerwise.stack.checks.compatibility import refuse_loss_of_a_kind

TABLE = Path(__file__).parents[2] / "docs" / "support.md"

_KINDS = {
    "decoder": "Text decoders",
    "encoder": "Text encoders",
    "vision": "Image and video encoders",
    "audio": "Audio encoders",
}

Finding = tuple[Specimen, dict[Way, Answer], Halves]


def with_tables(page: str, answers: Iterable[Finding]) -> str:
    """Return the page with the rows of its tables, its counts and the version written again."""
    found = list(answers)
    halves = {one.model_type: each for one, _, each in found}
    rows = {title: [row(*finding) for finding in found if finding[0].kind == kind] for kind, title in _KINDS.items()}
    rows |= {"The thirty .*": popular_rows(halves), "Refused": list(map(refused_row, REFUSED))}
    for title, lines in rows.items():
        before = re.search(rf"## {title}\n(?:(?!## ).*\n)*?\| --- .*\n", page)
        after = re.compile(r"(?:\|.*\n)+").match(page, before.end())
        page = page[: before.end()] + "".join(f"{line}\n" for line in lines) + page[after.end() :]
    split = len(found) - list(halves.values()).count("no")
    page = re.sub(r"\d+ (model types pass .* of) \d+", rf"{len(found)} \1 {split}", page)
    return re.sub(r"(with transformers) [\d.]+:", rf"\1 {transformers.__version__}:", page)


def row(one: Specimen, answers: dict[Way, Answer], halves: Halves) -> str:
    decoding = [answers[way] for way in WAYS] if one.kind == "decoder" else []
    cells = [f"`{one.model_type}`", one.model_class, f"`{one.layers}`", ", ".join(one.tags)]
    return _row([*cells, halves, *decoding])


def popular_rows(halves: Mapping[str, Halves]) -> list[str]:
    return [
        _row([f"{kind}", models, ", ".join(_constraints(named(kind), halves[kind])) or "none"])
        for kind, models in POPULAR.items()
    ]


def _constraints(one: Specimen, halves: Halves) -> list[str]:
    every = {"halves": halves == "no", "both kinds": _both_kinds(one), "keys and values": bool(one.reads)}
    return [name for name, holds in every.items() if holds]


def _both_kinds(one: Specimen) -> bool:
    model = specimen.build(one)
    try:
        for layer in range(specimen.DEPTH):
            refuse_loss_of_a_kind(model, one.layers, Plan.of([layer]))
    except PlanError:
        return True
    return False


def refused_row(refusal: Refusal) -> str:
    return _row([f"`{refusal}`", refusal.specimen.model_class, f"... {refusal.reason} ..."])


def committed_rows() -> dict[str, str]:
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    return {line.split("`")[1]: line for line in lines if line.startswith("| `")}


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def measure(one: Specimen) -> Finding:
    subject = checks.subject(one)
    checks.check_identity(subject)
    checks.check_plans(subject)
    checks.check_recording(subject)
    print(one, flush=True)
    return one, checks.check_decoding(subject), checks.check_halves(subject)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    page = TABLE.read_text(encoding="utf-8")
    TABLE.write_text(with_tables(page, map(measure, SUPPORTED)), encoding="utf-8")
