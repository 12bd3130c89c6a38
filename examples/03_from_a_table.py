"""From a table of counts to a table of predictions.

For each district, only the number of yes answers is published, but the age, income and region of
every person are known. The table gets the probability that each person said yes, without and with
the district's count.
"""

import numpy as np
import pandas as pd

import llpkit


def survey(districts: int = 150, seed: int = 0) -> pd.DataFrame:
    """A made-up survey; the answers are counted and thrown away."""
    rng = np.random.default_rng(seed)
    district = np.repeat(np.arange(districts), rng.integers(4, 13, districts))
    people = pd.DataFrame({"district": district})
    people["age"] = rng.integers(18, 91, len(people))
    people["income"] = rng.normal(30, 9, len(people)).round(1)
    people["region"] = rng.choice(["north", "south"], len(people))
    logit = 0.09 * (people["age"] - 54) + np.where(people["region"] == "south", 1.5, -1.5)
    yes = rng.random(len(people)) < 1 / (1 + np.exp(-logit))
    people["n_yes"] = yes.groupby(people["district"]).transform("sum")
    return people


def main(epochs: int = 40) -> pd.DataFrame:
    """The table with its predictions."""
    people = survey()
    bags = llpkit.Bags.from_frame(people, bag="district", count="n_yes")
    print(bags)

    # All columns but the bag and the count are features; the model stores their encoder.
    model = llpkit.fit(
        "linear", bags, people, epochs=epochs, batch_size=64, lr=0.03, progress=False
    )
    predicted = people.assign(
        probability=model.predict_proba(people)[:, 1].numpy(),
        label=model.predict(people).numpy(),
        posterior=model.posterior(people, bags)[:, 1].numpy(),
    )
    print(predicted.head())
    return predicted


if __name__ == "__main__":
    main()
