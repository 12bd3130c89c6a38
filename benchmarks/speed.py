"""Every ratio in one run: the E-step against its peers, epochs against supervised ones.

    python benchmarks/speed.py [--device cuda] [--quick] [--out DIR]

Prints the tables of estep.py (estep_gpu.py on a CUDA device) and epoch.py, then every demand with
what was measured; leaves speed.md, speed.json and the figures in DIR, by default
results/speed-cpu or results/speed-gpu. The exit status is 1 if a demand was missed; with --quick
no demands are made.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import epoch
import estep
import torch

Demand = tuple[str, float, float]  # number, least, most

DIGITS, TABLE = "small-cnn, digits of 8 x 8", "linear, a table of 1,000,000 rows x 20"
CPU: list[Demand] = [
    *estep.DEMANDS,
    *((f"{case}: mle over supervised", 0, 1.05) for case in (DIGITS, TABLE)),
]
BIRDS = "conv-large, cifar10, 10,855 images of 32 rows"
PHOTOS = "conv-large, group-photos, 6,708 images of 90 rows"
GPU: list[Demand] = [
    ("1 to 12: triton, float32, instances/s", 20e9, math.inf),
    *((f"{n}: triton, float32, instances/s", 20e9, math.inf) for n in (1, 2, 4, 8)),
    ("128: triton, float32, instances/s", 1e9, math.inf),
    (f"{BIRDS}: supervised epoch, s", 0, 0.30),
    (f"{BIRDS}: mle over supervised", 0, 1.03),
    *((f"{BIRDS}: {name} over supervised", 0, 1.15) for name in ("direct", "amle", "dllp")),
    (f"{BIRDS}: llp-gan over supervised", 0, 4),
    (f"{PHOTOS}: mle over supervised", 0, 1.03),
]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="a trial, no demands")
    parser.add_argument("--seed", type=int, default=0, help="seed of the bags (default: 0)")
    parser.add_argument("--rounds", type=int, default=0, help="turns (default: 9, quick: 3)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for what is found")
    options = parser.parse_args(arguments)
    on_card = options.device == "cuda"
    out = options.out or Path("results/speed-gpu" if on_card else "results/speed-cpu")
    out.mkdir(parents=True, exist_ok=True)

    if on_card:
        import estep_gpu

        command = f"python benchmarks/speed.py --device cuda{' --quick' * options.quick}"
        command += f" --rounds {options.rounds}" if options.rounds else ""
        report = estep_gpu.on("cuda", options.quick, options.seed, command)
        estep_gpu.figure(report.numbers, out / "estep_gpu.png")
    else:
        report = estep.measure(options.quick, options.seed, out, "speed.py")
    report.say("\n## Epochs\n")
    epoch.measure(
        options.device, options.quick, options.rounds or (3 if options.quick else 9), report
    )
    epoch.figure(report.numbers, out / "epochs.png")
    (out / "speed.json").write_text(json.dumps(report.numbers, indent=1) + "\n")
    (out / "speed.md").write_text(report.text)
    if options.quick:
        return 0
    report.say("## Demands\n")
    met = estep.demands(report, GPU if on_card else CPU)
    (out / "speed.md").write_text(report.text)
    return 0 if met else 1


if __name__ == "__main__":
    torch.set_num_threads(2)
    sys.exit(main())
