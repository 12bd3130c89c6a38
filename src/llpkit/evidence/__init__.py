"""Evidence: what is known about the counts of labels in bags."""

from llpkit.evidence.evidence import Evidence
from llpkit.evidence.weights import NO_BOUND

__all__ = ["NO_BOUND", "Evidence"]
