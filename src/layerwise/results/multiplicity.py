"""How much wider a 95 % interval is that holds for several comparisons at once (Bonferroni)."""

from __future__ import annotations

from statistics import NormalDist

from scipy.special import stdtrit


def normal_widening(comparisons: int) -> float:
    """Return by how much the arms of a normal 95 % interval grow.

    >>> round(normal_widening(1), 3), round(normal_widening(10), 3)
    (1.0, 1.432)
    """
    normal = NormalDist()
    return normal.inv_cdf(1 - 0.025 / comparisons) / normal.inv_cdf(0.975)


def student_widening(comparisons: int, degrees: int) -> float:
    """Return by how much the arms of Student's 95 % interval grow.

    >>> round(student_widening(1, 7), 3), round(student_widening(3, 7), 3), round(student_widening(10, 7), 3)
    (1.0, 1.323, 1.704)
    """
    return float(stdtrit(degrees, 1 - 0.025 / comparisons) / stdtrit(degrees, 0.975))


def stretch(count: int) -> float:
    """Return by how much more than the mde of one contrast `count` contrasts must be to be found together.

    >>> round(stretch(1), 2), round(stretch(2), 2)
    (1.0, 1.15)
    """
    normal = NormalDist()
    sure = normal.inv_cdf(0.975)
    return (sure + normal.inv_cdf(0.8 ** (1 / count))) / (sure + normal.inv_cdf(0.8))
