"""A check of the data before training: can the counts answer the question?"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from llpkit._text import several
from llpkit.config import Config
from llpkit.datasets import DataSet
from llpkit.evaluation import constant_rate
from llpkit.runs.data import load_data
from llpkit.statistics import Identifiability, identifiability

_LOW = 0.25
"""A share of the information of exact counts; counts with less get a warning."""


@dataclass(frozen=True)
class DataCheck:
    """What the data are, and what their counts can show."""

    data: DataSet
    found: Identifiability
    facts: dict[str, str]

    @property
    def warnings(self) -> list[str]:
        """Counts that can answer the question in principle but carry little information."""
        explained, bags = self.found.explained, len(self.data.bags)
        if not self.found.ok or explained >= _LOW:
            return []
        return [
            f"the counts carry only {explained:.0%} of the information of exact counts: {bags:,} "
            f"bags are worth about as much as {explained * bags:,.0f} with exact counts; "
            "give narrower ranges, or exact counts for some bags"
        ]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.found.ok,
            "facts": self.facts,
            "explained": self.found.explained,
            "warnings": self.warnings,
            "problems": [problem._asdict() for problem in self.found.problems],
            "notes": list(self.data.notes),
        }


def check(config: Config) -> DataCheck:
    """Load the data of a configuration and look for what the counts cannot determine."""
    data = load_data(config.data, config.recipe.seed)
    features = data.inputs if isinstance(data.inputs, Tensor) and data.inputs.dim() == 2 else None
    names = None if data.encoder is None else data.encoder.feature_names
    found = identifiability(features, data.bags, feature_names=names, seed=config.recipe.seed)
    return DataCheck(data, found, _facts(data, found))


def _facts(data: DataSet, found: Identifiability) -> dict[str, str]:
    bags = data.bags
    low, high = int(bags.sizes.min()), int(bags.sizes.max())
    sizes = f"size {low}" if low == high else f"sizes {low} to {high}"
    rate = constant_rate(bags)
    shares = torch.stack([1 - rate, rate]) if rate.dim() == 0 else rate
    pairs = list(zip(data.class_names, shares.tolist(), strict=True))
    if rate.dim() == 0:
        del pairs[0]  # the share of positives is enough
    counts = "exact"
    if not bags.evidence.is_exact:
        information = f"{found.explained:.0%} of the information of exact counts"
        counts = f"{bags.describe_counts()}, with {information}"
    facts = {
        "data": data.title,
        "bags": f"{len(bags):,} with {several(bags.num_instances, 'instance')}, {sizes}",
        "counts": counts,
        "shares": ", ".join(f"{name} {share:.1%}" for name, share in pairs),
    }
    if bags.evidence.is_exact:
        facts["spread"] = f"the counts vary {found.alike:.2f} times as much as expected by chance"
    if len(found.efficiency) and found.ok:
        mean = float(found.efficiency.mean())
        worth = f"{mean * bags.num_instances / len(bags):.2g}"
        facts["information"] = (
            f"{mean:.1%} of that in the labels of all instances; one count is worth "
            f"{worth} label{'' if worth == '1' else 's'}"
        )
    return facts
