"""Approximations for K classes: their error, their cost, and what EM loses by them.

    python benchmarks/classes.py [PART ...] [--quick] [--out results/classes]

Parts (all by default):

- error: posteriors and log-likelihoods against the exact ones, logits of standard deviation 1, 3
  and 6, counts of labels drawn from the logits;
- sampled: posteriors in bags too large for exact ones, against a sampler that exchanges labels, for
  logits of standard deviation 1, where it mixes fast. The root mean square error is estimated
  from two independent halves of the draws, so that their noise cancels;
- em: test accuracy of EM on digits, ten classes in bags of 16, five seeds of network and bags;
- cost: milliseconds for 50,000 instances of ten classes, beside Sinkhorn's scaling in torch, for
  logits of standard deviation 1.5 and n / 4;
- noise: seconds for 1,000 bags of 32 with noisy counts, against the recursion in torch.

The rows of each part are written to classes.parquet of the output folder; those of other parts
stay. `make tables` then writes the tables of docs/reference/many-classes.md.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import records
import torch
from records import Row

import llpkit
from llpkit import datasets, likelihood
from llpkit.errors import ApproximationWarning, BaselineWarning
from llpkit.likelihood import Evidence

SPREADS = (1, 3, 6)
NAMES = ("sinkhorn", "saddlepoint")


def draw(
    bags: int, n: int, classes: int, sd: float, seed: int = 0
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Logits, counts of labels drawn from them, and offsets."""
    rng = np.random.default_rng(seed)
    z = sd * rng.normal(size=(bags, n, classes))
    labels = (z + rng.gumbel(size=z.shape)).argmax(2)
    counts = np.stack([np.bincount(row, minlength=classes) for row in labels])
    logits = torch.from_numpy(z.reshape(-1, classes))
    return logits, torch.from_numpy(counts), torch.arange(bags + 1) * n


def error(quick: bool) -> Iterator[Row]:
    """Against the exact likelihood."""
    cells = [(8, 3, 500), (16, 10, 10_000), (24, 4, 200), (24, 10, 20), (64, 4, 40), (256, 3, 10)]
    if quick:
        cells = [(8, 3, 20)]
    for n, classes, bags in cells:
        for sd in SPREADS:
            data = draw(bags, n, classes, sd)
            log_p, phi = likelihood.log_prob_and_posterior(*data)
            for name in NAMES:
                value, near = likelihood.log_prob_and_posterior(*data, approximation=name)
                off, gap = (near - phi).abs(), (value - log_p).abs()
                row = {"n": n, "K": classes, "bags": bags, "sd": sd, "approximation": name}
                row |= {"mean": float(off.mean()), "largest": float(off.max())}
                row |= {"nats": float(gap.mean()), "most nats": float(gap.max())}
                worst = off.reshape(bags, -1).amax(1)  # in each bag
                row |= {"largest in 99.9 % of bags": float(worst.quantile(0.999))}
                row |= {"most nats in 99.9 %": float(gap.quantile(0.999))}
                yield row


def swap_sampler(
    z: np.ndarray, counts: np.ndarray, chains: int, rounds: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Posterior ``(n, K)`` from two independent halves of the chains, by exchanging labels.

    A round proposes ``n`` exchanges; the first fifth of the rounds is discarded.
    """
    rng = np.random.default_rng(seed)
    n, classes = z.shape
    start = np.repeat(np.arange(classes), counts)
    labels = np.stack([rng.permutation(start) for _ in range(chains)])  # (chains, n)
    chain = np.arange(chains)
    found = np.zeros((2, n, classes))
    kept = 0
    for turn in range(rounds):
        for _ in range(n):
            i, j = rng.integers(n, size=(2, chains))
            a, b = labels[chain, i], labels[chain, j]
            gain = z[i, b] + z[j, a] - z[i, a] - z[j, b]
            accept = np.log(rng.random(chains)) < gain
            labels[chain[accept], i[accept]] = b[accept]
            labels[chain[accept], j[accept]] = a[accept]
        if turn >= rounds // 5:
            kept += 1
            for k in range(classes):
                hits = labels == k
                found[0, :, k] += hits[: chains // 2].mean(0)
                found[1, :, k] += hits[chains // 2 :].mean(0)
    return found[0] / kept, found[1] / kept


def sampled(quick: bool) -> Iterator[Row]:
    """Against a sampler, where the exact posterior is intractable."""
    cells = [(12, 3)] if quick else [(64, 10), (256, 10)]
    chains, rounds = (40, 30) if quick else (400, 200)
    for n, classes in cells:
        for sd in (1,):  # exchanging labels mixes too slowly for confident logits
            z, counts, offsets = draw(1, n, classes, sd)
            one, two = swap_sampler(z.numpy(), counts[0].numpy(), chains, rounds, seed=1)
            for name in NAMES:
                phi = likelihood.posterior(z, counts, offsets, approximation=name).numpy()
                square = float(((phi - one) * (phi - two)).mean())
                row = {"n": n, "K": classes, "sd": sd, "approximation": name}
                row |= {"rms": float(np.sqrt(max(square, 0.0)))}
                row |= {"rms of a half of the draws": float(np.sqrt(((one - two) ** 2).mean() / 2))}
                yield row


def em(quick: bool, done: list[Row]) -> Iterator[Row]:
    """EM on digits; runs that are recorded are not repeated."""
    old = {(row["seed"], row["approximation"], row["epochs"]): row for row in done}
    seeds, epochs = ((0,), 2) if quick else (range(5), 40)
    data = datasets.load("digits", classes=10)
    assert data.truth is not None
    for seed in seeds:
        order = torch.randperm(1797, generator=torch.Generator().manual_seed(seed))
        train, test = order[:1437], order[1437:]
        bags = llpkit.random_bags(data.truth[train], 16, generator=seed, num_classes=10)
        for name in (None, *NAMES):
            key = (seed, name or "exact", epochs)
            if key in old:
                yield old[key]
                continue
            begin = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ApproximationWarning)
                warnings.simplefilter("ignore", BaselineWarning)
                model = llpkit.fit(
                    "mlp",
                    bags,
                    data.inputs[train],
                    method="mle",
                    epochs=epochs,
                    lr=3e-3,
                    seed=seed,
                    measure="off",
                    method_options={"approximation": name},
                    progress=False,
                )
            hits = model.predict(data.inputs[test]) == data.truth[test]
            row = {"seed": seed, "approximation": name or "exact", "epochs": epochs}
            row |= {"accuracy": 100 * float(hits.float().mean())}
            yield row | {"seconds": time.perf_counter() - begin}


def best(function: Callable[[], Any], turns: int = 3) -> float:
    """The shortest of a few calls, in seconds, after one that may compile."""
    function()
    times = []
    for _ in range(turns):
        _wait()
        begin = time.perf_counter()
        function()
        _wait()
        times.append(time.perf_counter() - begin)
    return min(times)


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def cost(quick: bool, device: str = "cpu") -> Iterator[Row]:
    """Milliseconds of an E-step, also for confident logits, where the pruned recursion is used."""
    compiled = "numba" if device == "cpu" else "triton"
    for n in (16,) if quick else (16, 64, 256):
        bags = (500 if quick else 50_000) // n
        for sd in (n / 4, 1.5):
            z, counts, offsets = draw(bags, n, 10, sd)
            z, counts, offsets = z.float().to(device), counts.to(device), offsets.to(device)
            cases = [("sinkhorn", "torch"), ("saddlepoint", compiled)]
            if sd == 1.5:
                cases.append(("saddlepoint", "torch"))
            for name, backend in cases:
                options = {"approximation": name, "backend": backend, "validate": False}
                seconds = best(
                    partial(likelihood.log_prob_and_posterior, z, counts, offsets, **options)
                )
                row = {"n": n, "K": 10, "sd": sd, "instances": bags * n, "approximation": name}
                yield row | {"backend": backend, "ms": 1e3 * seconds}
        few = min(bags, 50)
        if n == 16 and device == "cpu":  # the exact recursion, scaled up from some bags
            part = z[: few * n], counts[:few], offsets[: few + 1]
            seconds = best(partial(likelihood.posterior, *part, validate=False)) * bags / few
            row = {"n": n, "K": 10, "sd": sd, "instances": bags * n}
            row |= {"approximation": "exact, extrapolated"}
            yield row | {"backend": "numba", "ms": 1e3 * seconds}


def noise(quick: bool) -> Iterator[Row]:
    """Seconds of an E-step with noisy counts: Laplace noise of scale 1 on every class."""
    for classes in (3,) if quick else (3, 4):
        bags, n = (10, 8) if quick else (1000, 32)
        z, counts, offsets = draw(bags, n, classes, 1.5)
        observed = counts.numpy() + np.random.default_rng(1).laplace(size=counts.shape)
        evidence = Evidence.noisy(observed, lambda seen, k: -(seen - k).abs(), [n] * bags)
        for backend in ("numba", "torch"):
            # The torch backend is shown some bags only, or it would take minutes.
            some = bags if backend == "numba" else max(5, bags // (20 if classes == 3 else 200))
            part = z[: some * n], evidence[:some], offsets[: some + 1]
            options = {"backend": backend, "validate": False}
            call = partial(likelihood.log_prob_and_posterior, *part, **options)
            seconds = best(call, turns=1) * bags / some
            row = {"n": n, "K": classes, "bags": bags, "backend": backend, "seconds": seconds}
            yield row | {"measured on bags": some}


PARTS: dict[str, Callable[..., Iterator[Row]]] = {
    "error": error,
    "sampled": sampled,
    "em": em,
    "cost": cost,
    "noise": noise,
}


def figure(rows: list[Row], path: Path) -> None:
    """Mean and largest error of the posterior by the spread of the logits."""
    from matplotlib.figure import Figure

    cells = list(dict.fromkeys((row["n"], row["K"]) for row in rows))[:4]
    picture = Figure(figsize=(2.6 * len(cells) + 0.8, 3.2), layout="constrained")
    axes = picture.subplots(1, len(cells), sharey=True, squeeze=False)[0]
    colours = {"sinkhorn": "#888888", "saddlepoint": "#1f6fb4"}
    for axis, (n, classes) in zip(axes, cells, strict=True):
        for name, colour in colours.items():
            own = [r for r in rows if (r["n"], r["K"], r["approximation"]) == (n, classes, name)]
            spread = [r["sd"] for r in own]
            axis.plot(spread, [r["mean"] for r in own], "o-", color=colour, label=f"{name}, mean")
            largest = [r["largest"] for r in own]
            axis.plot(spread, largest, "o:", color=colour, label=f"{name}, largest")
        axis.set(yscale="log", xticks=SPREADS, title=f"{classes} classes, bags of {n}")
        axis.set_xlabel("standard deviation of logits")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("error of the posterior")
    handles, labels = axes[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=150)


def main(arguments: list[str] | None = None) -> dict[str, list[Row]]:
    """Run the parts and record their rows."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="a small form, for a test")
    parser.add_argument("--device", default="cpu", help="of the part cost: cpu or cuda")
    parser.add_argument("--out", type=Path, default=Path("results/classes"))
    options = parser.parse_args(arguments)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(sorted(unknown))}; parts are {', '.join(PARTS)}")
    torch.set_num_threads(1)
    file = options.out / "classes.parquet"
    found: dict[str, list[Row]] = {}
    for name in options.parts or PARTS:
        known = records.read(file)
        others = [row for row in known if row["part"] != name]
        more: list[Any] = [options.device] if name == "cost" else []
        if name == "em":
            more = [[row for row in known if row["part"] == name]]
        found[name] = []
        for row in PARTS[name](options.quick, *more):
            print(row, flush=True)
            found[name].append({"part": name, "machine": records.machine()} | row)
            records.write(file, [*others, *found[name]])
    if "error" in found:
        figure(found["error"], options.out / "error.png")
    return found


if __name__ == "__main__":
    main()
