"""A pre-training that never happened, with rows of every measure of it: the planted golden run.

The truth is planted: `elc` is a little better than the backbone at equal tokens and no better at equal seconds;
its seeds share a pattern beyond their start; agreement is known far above chance and islands not at all; the greatest
weights are not the greatest effects.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from layerwise.report import ReportData
from tools.golden.stored_run import read_run


@cache
def run() -> ReportData:
    """The whole run: four arms of three seeds each, evaluated, studied and pruned."""
    return read_run(Path(__file__).parents[1] / "golden" / "pretraining-planted")


def only(data: ReportData, *measures: str) -> ReportData:
    """The same run with these measures alone."""
    return ReportData(data.manifest, (), tuple(score for score in data.scores if score.measure in measures))


def without(data: ReportData, *measures: str) -> ReportData:
    """The same run with some measures never taken."""
    return only(data, *{score.measure for score in data.scores} - set(measures))
<<<<<<< HEAD


def row(measure: str, subject: str, task: str, metric: str, value: float, half: float | None = None) -> Score:
    """A score with an interval of `half` to either side, where it is given."""
    low, high = (None, None) if half is None else (value - half, value + half)
    return Score(measure, subject, task, metric, value, low, high)


def alpha(arm: str, depth: int, draw: random.Random) -> Iterator[Score]:
    """Weights of three seeds about one pattern; those of `denseformer` are of any sign and its output mixes too."""
    free = arm == "denseformer"
    readers = depth + free
    pattern = [[draw.gauss(0.0, 0.9) for _ in range(reader + 1)] for reader in range(readers)]
    for seed in SEEDS:
        for reader, wanted in enumerate(pattern):
            raw = [value + draw.gauss(0.0, 0.25) for value in wanted]
            raw[-1] += 1.0
            total = sum(math.exp(value) for value in raw)
            for source, value in enumerate(raw):
                weight = float(source == reader) + 0.12 * value if free else math.exp(value) / total
                yield row("alpha", f"{arm}/{seed}", "out" if reader == depth else str(reader), str(source), weight)


def _training(draw: random.Random) -> Iterator[Score]:
    for arm, loss in LOSSES.items():
        for seed in SEEDS:
            for step in range(0, 2001, 100):
                at = loss + 4.5 * math.exp(-step / 350) + draw.gauss(0.0, 0.02)
                of = {"arm": arm, "seed": seed, "amount": float(step)}
                yield Score.of("training", "train_loss", at, **of)
                yield Score.of("training", "validation_loss", at + 0.08, **of)
            slower = 1.0 if arm == "ltg" else 1.07
            costs = {
                "steps": 2000.0, "seconds": 905.0 * slower, "tokens": 8.2e6, "parameters": 23.8e6 + (arm != "ltg") * 78,
                "step_seconds": 0.45 * slower, "peak_bytes": 1.9e9 * slower, "latency_seconds": 0.021 * slower,
                "weight_bytes": 95.2e6, "state_bytes": 1.5e6 * (2 if arm == "ltg" else 13), "activation_bytes": 4.2e7,
            }  # fmt: skip
            for metric, value in costs.items():
                yield Score.of("training", metric, value, arm=arm, seed=seed)


def _held_out(draw: random.Random) -> Iterator[Score]:
    for arm, loss in LOSSES.items():
        yield row("masked_lm", arm, "test", "nll", loss, 0.009)
        for seed in SEEDS:
            yield row("masked_lm", f"{arm}/{seed}", "test", "nll", loss + draw.gauss(0.0, 0.004), 0.02)


def _suite(suite: str, phenomena: tuple[str, ...], draw: random.Random) -> Iterator[Score]:
    for at, arm in enumerate(LOSSES):
        for name in (arm, *(f"{arm}/{seed}" for seed in SEEDS)):
            known = {phenomenon: PHENOMENA.get(phenomenon, 0.78) + 0.008 * at for phenomenon in phenomena}
            tasks = {"all": sum(known.values()) / len(known)}
            tasks |= {f"phenomenon:{phenomenon}": share for phenomenon, share in known.items()}
            tasks |= {f"paradigm:{name}_{part}": share for name, share in known.items() for part in (1, 2)}
            for task, share in tasks.items():
                value = share + draw.gauss(0.0, 0.006)
                size = 1000 if task.startswith("paradigm") else 2000
                half = 0.006 if task == "all" else 0.018
                yield Score(suite, name, task, "accuracy", value, value - half, value + half, documents=size)
            for metric, value in {"chance": 0.5, "coverage": 0.993, "whole_words": 0.81, "temperature": 1.0}.items():
                yield row(suite, name, "all", metric, value)


def _benchmarks(draw: random.Random) -> Iterator[Score]:
    for arm in LOSSES:
        for name in (arm, f"{arm}/0", f"{arm}/0.0", f"{arm}/0.1"):
            for task, metrics in GLUE.items():
                for metric, (value, chance) in metrics.items():
                    yield row("glue", name, task, metric, value + draw.gauss(0.0, 0.01), 0.03)
                    yield row("glue", name, task, f"{metric}@chance", chance)
            for task, value in OURS.items():
                yield row("msgs-ours", name, task, "mcc", min(1.0, value + draw.gauss(0.0, 0.03)), 0.05)
                yield row("msgs-ours", name, task, "mcc@chance", 0.0)


def _study() -> Iterator[Score]:
    for arm, tokens, p in (("elc", -0.023, 0.008), ("zero", 0.006, 0.31), ("denseformer", -0.018, 0.02)):
        subject = f"{arm} - ltg"
        yield Score("study", subject, "masked_lm tokens", "difference", tokens, tokens - 0.012, tokens + 0.012, p)
        yield Score("study", subject, "pairs tokens", "difference", 0.008, -0.006, 0.022, 0.2)
        seconds = tokens + 0.02
        yield Score("study", subject, "masked_lm seconds", "difference", seconds, seconds - 0.03, seconds + 0.03, 0.4)
        yield Score("study", subject, "pairs seconds", "difference", 0.001, -0.013, 0.015, 0.8)
        yield Score("study", subject, "time", "ratio", 1.07, 1.05, 1.09)
        yield Score("study", subject, "latency", "ratio", 1.05, 1.02, 1.08)


def _seed_agreement() -> Iterator[Score]:
    tasks = {
        "seeds": ("correlation", 0.71, 0.0005),
        "seeds beyond the start": ("correlation", 0.63, 0.0005),
        "grouping": ("contrast", 0.22, 0.03),
        "grouping beyond distance": ("contrast", 0.04, 0.31),
    }
    for arm in MIXING:
        for task, (metric, value, p) in tasks.items():
            yield Score("seed_agreement", arm, task, metric, value, p=p)
            yield Score("seed_agreement", arm, task, f"{metric}@shuffled", 0.0, -0.18, 0.19)


def _pattern() -> Iterator[Score]:
    """The mass of the embedding and the layer before: above equal shares, and as it was at the start."""
    for arm, learned in (("elc", 0.01), ("zero", 0.24)):
        for metric, value in (("above_equal", 0.24), ("learned", learned)):
            low, high = value - 0.03, value + 0.03
            yield Score("contrast", "pattern", arm, metric, value, low, high, mde=0.04)


def _phenomena(depth: int, draw: random.Random) -> Iterator[Score]:
    """One edge carries agreement and nothing else; the others stray by chance."""
    for name in PHENOMENA:
        task = f"blimp: {name}"
        yield row("edge_phenomena", "all", task, "margin", 2.0, 0.3)
        for reader in range(1, depth):
            for source in range(reader + 1):
                planted = (reader, source, name) == (3, 1, "subject_verb_agreement")
                value = 0.9 if planted else draw.gauss(0.0, 0.06)
                p = 1e-6 if planted else 1.0
                bounds = (value - 0.2, value + 0.2)
                yield Score("edge_phenomena", f"{reader}<-{source}", task, "effect", value, *bounds, p, p, 0.3)
                if planted:
                    yield Score("edge_phenomena", "3<-1", task, "confirmed", 0.8, 0.6, 1.0, 1e-6, 1e-6)
    task = "msgs-ours: linguistic - surface"
    for name in ("main_verb", "length"):
        yield Score("edge_phenomena", "1<-0", f"msgs-ours: {name}", "effect", 0.1, -0.1, 0.3, 0.4, 1.0)
    yield Score("edge_phenomena", "1<-0", task, "contrast", -0.4, -0.6, -0.2, 0.001, 0.002)
    yield Score("edge_phenomena", "all", task, "rank_correlation", 0.5, -0.2, 0.9, 0.2)


def _stability(depth: int) -> Iterator[Score]:
    for arm, distance, start in (("elc", 0.3, 0.2), ("zero", 0.02, 0.0)):
        for task in ("all", *map(str, range(1, depth))):
            low, high = distance - 0.015, distance + 0.015
            yield Score("uniformity", arm, task, "distance", distance, low, high, 0.001, 0.01)
            yield Score("uniformity", arm, task, "start", start)
            yield Score("uniformity", arm, task, "learned", distance - start, 0.0, 0.12, 0.04, 0.2)
            yield Score("uniformity", arm, task, "entropy", 0.9)
    for arm in LOSSES:
        yield from (Score("stability", f"{arm}/{seed}", "all", "spikes", 0.0) for seed in SEEDS)
        yield Score("stability", arm, "all", "spiked", 0.0, 0.0, 0.6)
        yield Score("stability", arm, "all", "spread", 0.004, 0.002, 0.02)
        yield Score("stability", arm, "all", "gradient_norm", 0.9, 0.7, 1.1)
        if arm != "ltg":
            yield Score("stability", arm, "all", "spread_ratio", 1.4, 0.3, 8.0, 0.6, 1.0)


def _dynamics(draw: random.Random) -> Iterator[Score]:
    """A loss that rises with the bias, weights worth more with less text, and a loss that is reached sooner."""
    for arm, bias in (("zero", 0.0), ("elc", 1.0), ("elc-bias-2", 2.0), ("elc-bias-4", 4.0)):
        yield row("initial_bias", arm, "all", "bias", bias)
        yield row("initial_bias", arm, "masked_lm", "value", 4.09 + 0.01 * bias, 0.004)
        yield row("initial_bias", arm, "pairs", "value", 0.7 + draw.gauss(0.0, 0.01), 0.02)
    for task, slope, p in (("masked_lm", 0.01, 0.004), ("pairs", 0.001, 0.7)):
        yield Score("initial_bias", "grid", task, "slope", slope, slope - 0.003, slope + 0.003, p, 2 * p)
        yield Score("initial_bias", "grid", task, "differ", 3.0, p=p, p_adjusted=2 * p)
    for share in (0.125, 0.5, 1.0):
        gap = -0.02 / share**0.5
        for arm, value in (("ltg", 4.0 + 0.1 / share), ("elc", 4.0 + 0.1 / share + gap)):
            yield row("data_share", arm, f"share {share:g}", "nll", value, 0.01)
        yield Score("data_share", "elc - ltg", f"share {share:g}", "nll", gap, gap - 0.01, gap + 0.01, 0.01, 0.03)
    yield Score("data_share", "elc - ltg", "all", "nll", -0.012, -0.02, -0.004, 0.01, 0.01)
    yield row("convergence", "target", "all", "loss", 4.2)
    for cost, value in (("steps", 0.88), ("seconds", 0.95)):
        yield Score("convergence", "elc - ltg", cost, "ratio", value, value - 0.07, value + 0.07, 0.02, 0.04)
        yield Score("convergence", "zero - ltg", cost, "ratio", 1.3)
        yield row("convergence", "zero", cost, "censored", 0.33)


def tuning() -> Iterator[Score]:
    """Fine-tuning on two tasks: sooner with weights in both, and never as good with those of pretraining alone."""
    yield row("tuning_convergence", "target", "rte", "score", 0.58)
    yield row("tuning_convergence", "target", "cola", "score", 0.31)
    ratios = {"ltg-rewired": 1.02, "elc-kept": 1.2, "elc": 0.8}
    for cost, scale in (("steps", 240.0), ("seconds", 31.0)):
        for task in ("rte", "cola", "all"):
            for arm, ratio in {"ltg": 1.0, **ratios}.items():
                never = arm == "elc-kept" and task != "cola"
                bounds = (None, None) if never else (ratio - 0.1, ratio + 0.1)
                if task != "all":
                    yield Score("tuning_convergence", arm, f"{task} {cost}", "cost", scale * ratio)
                if arm != "ltg":
                    p = None if never else 0.01 if arm == "elc" else 0.6
                    yield Score(
                        "tuning_convergence", f"{arm} - ltg", f"{task} {cost}", "ratio", ratio, *bounds, p, p,
                    )  # fmt: skip
                if never and task != "all":
                    yield row("tuning_convergence", arm, f"{task} {cost}", "censored", 0.33)


def attributed() -> Iterator[Score]:
    """Decisions that come from surface words, a little less with layer weights."""
    task = "ambiguous main_verb_relative_position"
    tokens = {"linguistic": 0.22, "surface": 0.15}
    for arm, linguistic in (("ltg", 0.24), ("elc", 0.3), ("zero", 0.25)):
        own = {"linguistic": linguistic, "surface": 0.4}
        for end, shares in (("", own), ("@shuffled", tokens)):
            for feature, share in shares.items():
                yield row("attribution", arm, task, f"{feature}{end}", share, 0.03)
            preference = shares["linguistic"] - tokens["linguistic"] - shares["surface"] + tokens["surface"]
            yield row("attribution", arm, task, f"preference{end}", preference, 0.04)
        for feature, share in tokens.items():
            yield row("attribution", arm, task, f"{feature}@tokens", share)
        yield row("attribution", arm, task, "gap", 0.004)
    for arm, value, p in (("elc", 0.06, 0.01), ("zero", 0.01, 0.7)):
        bounds = (value - 0.03, value + 0.03)
        yield Score("study", f"{arm} - ltg", "linguistic attribution tokens", "difference", value, *bounds, p, 2 * p)


def edges(depth: int, draw: random.Random) -> Iterator[Score]:
    """Every edge with its weight and its effect, and what is left after cutting most of them."""
    for reader in range(1, depth):
        for source in range(reader + 1):
            name, weight = f"{reader}<-{source}", abs(draw.gauss(0.0, 0.3))
            yield row("edges", name, "all", "weight", weight)
            yield row("edges", name, "all", "effect", 0.04 * weight + abs(draw.gauss(0.0, 0.02)), 0.008)
    yield Score("edges", "all", "all", "rank_correlation", 0.31, 0.08, 0.5, 0.01)
    yield row("edges", "pruned", "all", "edges", 30.0)
    yield row("edges", "pruned", "all", "difference", 0.021, 0.009)
    yield row("edges", "pruned", "all", "difference@size", 0.064, 0.014)
    yield row("edges", "pruned", "all", "difference@random", 0.31, 0.18)
    yield row("edges", "pruned", "all", "less_than_by_size", 0.043, 0.012)
=======
>>>>>>> w-pretraining
