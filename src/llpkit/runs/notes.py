"""What a run notes about its model and bags."""

from collections.abc import Mapping

from llpkit import evaluation
from llpkit._validation import option
from llpkit.bags import Bags
from llpkit.likelihood.choice import choice_note
from llpkit.training import Fitted


def model_notes(model: Fitted, parts: Mapping[str, Bags]) -> list[str]:
    """The warnings of the fit, and approximations in training and in the measures."""
    approximation = model.details.get("settings", {}).get("chosen_approximation")
    notes = list(model.details.get("warnings", ()))
    if approximation is not None:
        notes.append(choice_note(approximation))
    if approximated := evaluation.approximation_note(*parts.values()):
        notes.append(approximated)
    measured = model.history[-1].get("measured_bags") if model.history else None
    if measured is not None:
        notes.append(
            f"after every epoch, the log-likelihood was computed on {measured:,} of "
            f"{len(parts['training']):,} training bags, because computing it on all of them would "
            f"be slow; {option('measure', 'all')} uses all"
        )
    return notes
