"""Probabilities as text: the predicted label, the length of its bar, whether it is right."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Prediction:
    """What a method predicts for an instance, as text.

    ``share`` is the length of its bar: the probability of the positive class, or of ``label`` with
    more than two classes.
    """

    label: str
    share: str
    text: str
    posterior_share: str | None
    posterior_text: str | None
    right: bool | None


def prediction(
    probability: Any, posterior: Any, truth: int | None, class_names: Sequence[str]
) -> Prediction:
    """Describe a probability, or one per class."""
    p = np.atleast_1d(probability)
    if len(p) == 1:
        label, shown, of = int(p[0] >= 0.5), 0, 1
    else:
        label = shown = of = int(p.argmax())
    phi = None if posterior is None else float(np.atleast_1d(posterior)[shown])
    return Prediction(
        label=class_names[label],
        share=_share(p[shown]),
        text=f"{class_names[of]} {percent(p[shown])}",
        posterior_share=None if phi is None else _share(phi),
        posterior_text=None if phi is None else percent(phi),
        right=None if truth is None else label == truth,
    )


def expected(probability: Any, class_names: Sequence[str]) -> str:
    """The expected counts of a bag: sums of probabilities, as known counts are sums of labels.

    The number of instances per predicted label would be misleading next to a known count: of 100
    instances with probability 0.4, none is labelled positive but 40 are expected to be.
    """
    rows = np.asarray(probability)
    if rows.ndim == 1:
        return f"{math.fsum(rows):.1f} of {len(rows)} {class_names[1]}"
    totals = zip(rows.sum(0), class_names, strict=True)
    return ", ".join(f"{total:.1f} {name}" for total, name in totals)


def percent(p: float) -> str:
    """A probability in whole percent that never claims certainty."""
    if p > 0.99:
        return ">99%"
    if p < 0.01:
        return "<1%"
    return f"{100 * p:.0f}%"


def _share(p: float) -> str:
    return f"{100 * min(max(p, 0.0), 1.0):.1f}%"
