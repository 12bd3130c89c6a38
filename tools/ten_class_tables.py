"""The tables of benchmark.md: accuracy by method and bag size, with an official test split."""

from paper_tables import ROOT
from table_kit import Rows, code, table

from llpkit.experiments import Results
from llpkit.experiments.sizes import size_accuracies


def benchmark(folder: str) -> Rows:
    """Accuracy in per cent, mean ± standard deviation (number of seeds)."""
    rows = size_accuracies(Results.read(ROOT / "results" / folder).by_method("bag-size"))
    sizes = sorted({row.size for row in rows})
    found = {(row.method, row.size): f"{row.accuracy:.1f} ({row.accuracy.number})" for row in rows}
    names = list(dict.fromkeys(row.method for row in rows))
    head = ["method", *(f"bags of {size}" for size in sizes)]
    return [head, *([code(name), *(found.get((name, n), "") for n in sizes)] for name in names)]


@table
def fashion_ten() -> Rows:
    """A tenth of Fashion-MNIST at half size, ten classes."""
    return benchmark("fashion-ten")


@table
def digits_ten() -> Rows:
    """Handwritten digits, ten classes."""
    return benchmark("digits-ten")


@table
def digits_two() -> Rows:
    """Handwritten digits, odd or even."""
    return benchmark("digits-two")
