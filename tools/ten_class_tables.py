"""The tables of benchmark.md: accuracy by method and bag size, with an official test split."""

from table_kit import ROOT, Rows, code, table

from llpkit.experiments import Results
from llpkit.experiments.summary import size_accuracies


def benchmark(folder: str) -> Rows:
    """Accuracy in per cent, mean ± standard deviation (number of seeds)."""
    found = size_accuracies(Results.read(ROOT / "results" / folder).by_method("bag-size"))
    sizes = sorted({size for own in found.values() for size in own})
    rows = [["method", *(f"bags of {size}" for size in sizes)]]
    for name, own in found.items():
        cells = [f"{own[n]:.1f} ({own[n].number})" if n in own else "" for n in sizes]
        rows.append([code(name), *cells])
    return rows


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
