"""The count likelihood: what a count reveals about the instances of a bag.

A model gives each of three people in a room a probability of speaking French. We learn that exactly
one of them does. How likely was that count, and who is it?
"""

from itertools import product

import torch

from llpkit import Evidence, likelihood


def main() -> dict[str, torch.Tensor]:
    """Likelihood and posterior of one bag, and the same by enumeration."""
    p = torch.tensor([0.9, 0.5, 0.2], dtype=torch.float64)
    logits = p.logit()
    offsets = torch.tensor([0, 3])  # one bag: rows 0, 1 and 2

    log_p, posterior = likelihood.log_prob_and_posterior(logits, [1], offsets)
    print(f"P(one of three) = {log_p.exp().item():.3f}")
    for name, before, after in zip("ABC", p, posterior, strict=True):
        print(f"  {name}: {before:.2f} before the count, {after:.2f} after it")
    print(f"The posteriors sum to the count: {posterior.sum():.3f}")

    # By definition, a sum over all label combinations with that count. For n instances there are up
    # to 2^n of them; the engine needs O(n) time.
    total = torch.zeros((), dtype=torch.float64)
    for labels in product([0, 1], repeat=3):
        if sum(labels) == 1:
            h = torch.tensor(labels)
            total += torch.where(h == 1, p, 1 - p).prod()
    print(f"By enumeration: {total:.3f}")

    # We may know less than a count: here, that at least one person speaks French.
    at_least_one = likelihood.log_prob(logits, Evidence.at_least([1]), offsets)
    print(f"P(at least one) = {at_least_one.exp().item():.3f}")
    return {"log_prob": log_p, "posterior": posterior, "enumerated": total.log()}


if __name__ == "__main__":
    main()
