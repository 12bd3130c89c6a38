"""Evidence: what is known about the counts of labels in bags."""

from llpkit.evidence.evidence import NO_BOUND, Evidence

__all__ = ["NO_BOUND", "Evidence"]
