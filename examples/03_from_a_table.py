"""From a table of counts to a table of predictions.

Of a survey, only the number of yes answers per district is published, but age, income and region of
every person are known. The CSV table comes back with the probability that each person said yes,
without and with the district's count.
"""

import random
import tempfile
from pathlib import Path

import llpkit
from llpkit import datasets
from llpkit.tables import Table


def write_survey(path: Path, districts: int = 150, seed: int = 0) -> None:
    """Write a made-up survey; the answers are counted and thrown away."""
    draw = random.Random(seed)
    lines = ["district,n_yes,age,income,region"]
    for district in range(districts):
        people, answers = [], 0
        for _ in range(draw.randint(4, 12)):
            age, income = draw.randint(18, 90), round(draw.gauss(30, 9), 1)
            region = draw.choice(["north", "south"])
            lean = 0.09 * (age - 54) + (1.5 if region == "south" else -1.5)
            answers += draw.random() < 1 / (1 + 2.718281828**-lean)
            people.append(f"{age},{income},{region}")
        lines += [f"d{district},{answers},{person}" for person in people]
    path.write_text("\n".join(lines) + "\n")


def main(epochs: int = 40) -> list[str]:
    """The lines of the table with its predictions."""
    with tempfile.TemporaryDirectory() as folder:
        survey, result = Path(folder, "survey.csv"), Path(folder, "predicted.csv")
        write_survey(survey)

        data = datasets.load("feature-table", table=survey, bag="district", count="n_yes")
        print(data.describe())
        model = llpkit.fit(
            "linear", data.bags, data.inputs, epochs=epochs, batch_size=64, lr=0.03, progress=False
        )

        table = Table.read(survey)
        inputs = data.encoder.apply(table)  # encodes any later table in the same way
        columns = {
            "probability": model.predict_proba(inputs)[:, 1].numpy(),
            "label": model.predict(inputs).numpy(),
            "posterior": model.posterior(inputs, data.bags)[:, 1].numpy(),
        }
        table.write(result, columns)
        lines = result.read_text().splitlines()
    print(*lines[:4], sep="\n")
    return lines


if __name__ == "__main__":
    main()
