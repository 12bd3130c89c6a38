"""Run directories with damage: the answer of the undamaged run, to the bit, or an LLPError.

One case is one damaged copy put to one use: ``llpkit.load``, ``predict``, ``evaluate``, a resumed
``fit``, or ``reproduce`` on a changed protocol (which may be valid, so that it need only end
well).
"""

import contextlib
import functools
import io
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import yaml

import llpkit
from fits import Interrupt
from fuzzing.scoring import Score, attempt, fail
from llpkit import LLPError
from llpkit.cli import main
from llpkit.experiments import protocol_file

EPOCHS = 4


class Made:
    """What is damaged: made once."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="llpkit-fuzz-"))
        self.table = self.folder / "t.csv"
        draw = random.Random(0)
        lines = ["b,y,x,k"]
        for b in range(12):
            rows = [(draw.gauss(0, 1), draw.choice("uvw")) for _ in range(draw.randint(1, 5))]
            y = sum(x > 0 for x, _ in rows)
            lines += [f"b{b},{y},{x:.3f},{k}" for x, k in rows]
        self.table.write_text("\n".join(lines) + "\n")
        columns = ["fit", str(self.table), "--bag", "b", "--count", "y", "--quiet"]
        with patch("llpkit.runs.page.write_report", lambda *_: None):
            network = ["--network", "mlp", "--epochs", "2", "--out", str(self.folder / "network")]
            assert _command([*columns, *network])[0] == 0
        for name, more in (("logistic", []), ("random-forest", ["n_estimators=3"])):
            chosen = ["--estimator", name, "--out", str(self.folder / name)]
            chosen += [w for option in more for w in ("--estimator-option", option)]
            assert _command([*columns, *chosen])[0] == 0
        self.runs = ("network", "logistic", "random-forest")
        self.answers = {}
        for name in self.runs:
            for use in ("predict", "evaluate", "load"):
                if use != "load" or name == "network":
                    self.answers[name, use] = USES[use](self, self.folder / name)
        stopped = self.folder / "stopped"
        with contextlib.suppress(KeyboardInterrupt):
            self.train(stopped, callbacks=Interrupt(2))
        resumed = Path(shutil.copytree(stopped, self.folder / "resumed"))
        self.answers["stopped", "resume"] = USES["resume"](self, resumed)

    @staticmethod
    def train(folder: Path, **options: Any) -> Any:
        x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
        bags = llpkit.random_bags((x[:, 0] > 0).long(), 3, generator=0)
        options = {"epochs": EPOCHS, "progress": False, "run_dir": folder, **options}
        return llpkit.fit("linear", bags, x, device="cpu", **options)


@functools.cache
def made() -> Made:
    return Made()


# Uses: each gives the answer as bytes, or raises


class Refused(LLPError):
    """The command line said no, with a message."""


def _command(arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(arguments)
    return code, out.getvalue(), err.getvalue()


def _said(arguments: list[str]) -> str:
    """What a command printed; a refusal is raised."""
    code, out, err = _command(arguments)
    if code != 0:
        if not err.strip() or "Traceback" in err:
            raise RuntimeError(f"status {code} without a message: {err}")
        raise Refused(err)
    return out


def _predict(base: Made, run: Path) -> bytes:
    out = run.parent / f"{run.name}-predicted.csv"
    out.unlink(missing_ok=True)
    _said(["predict", str(run), str(base.table), "--out", str(out), "--quiet"])
    return out.read_bytes()


def _evaluate(base: Made, run: Path) -> bytes:
    out = _said(["evaluate", str(run), str(base.table), "--json"])
    return json.dumps(json.loads(out)["parts"]).encode()


def _load(_: Made, run: Path) -> bytes:
    model = llpkit.load(run)
    x = torch.linspace(-2, 2, 5 * model.input_shape[0]).reshape(5, -1)
    return model.predict_proba(x).numpy().tobytes()


def _resume(base: Made, run: Path) -> bytes:
    model = base.train(run, resume=True)
    return b"".join(v.numpy().tobytes() for v in model.network.state_dict().values())


USES: dict[str, Callable[[Made, Path], bytes]] = {
    "predict": _predict,
    "evaluate": _evaluate,
    "load": _load,
    "resume": _resume,
}


# Damage


def case(rng: np.random.Generator, score: Score) -> None:
    """One round: some damaged copies."""
    base = made()
    with tempfile.TemporaryDirectory(prefix="llpkit-fuzz-") as place:
        for number in range(4):
            name, use = list(base.answers)[rng.integers(len(base.answers))]
            run = Path(shutil.copytree(base.folder / name, Path(place) / f"{number}-{name}"))
            what = _damage(rng, run, base)
            info = {"run": name, "use": use, "damage": what}
            found, refusal = attempt(lambda u=use, r=run: USES[u](base, r), **info)
            if refusal is not None:
                score.refuse()
                continue
            if found != base.answers[name, use]:
                fail(f"another answer after damage to {what.split()[-1]}, in silence", **info)
            score.confirm()
        if rng.random() < 0.02:
            _protocol(rng, Path(place), score)


def _damage(rng: np.random.Generator, run: Path, base: Made) -> str:
    files = sorted(f for f in run.rglob("*") if f.is_file() and f.suffix not in (".png", ".pdf"))
    likely = [f for f in files if f.suffix in (".safetensors", ".skops", ".json", ".yaml", ".pt")]
    file = (likely or files)[rng.integers(len(likely or files))]
    if rng.random() < 0.1:
        file = files[rng.integers(len(files))]
    name = file.name
    content = file.read_bytes()
    kind = str(rng.choice(["bit", "bit", "bit", "cut", "remove", "value", "swap", "more", "empty"]))
    if kind == "value" and file.suffix == ".json":
        file.write_text(json.dumps(_changed_json(rng, json.loads(content))))
        return f"changed a value of {name}"
    if kind == "value" and file.suffix == ".yaml":
        lines = content.decode().splitlines()
        i = int(rng.integers(len(lines)))
        junk = [
            "",
            "  x: [",
            "epochs: many",
            "data: 3",
            "- a",
            "&a [*a]",
            "\t",
            "estimator: nobody",
        ]
        lines[i] = junk[rng.integers(len(junk))]
        file.write_text("\n".join(lines))
        return f"line {i} became {lines[i]!r} in {name}"
    if kind == "swap":
        others = [base.folder / other / name for other in base.runs]
        others = [f for f in others if f.exists() and f.read_bytes() != content]
        if others:
            other = others[rng.integers(len(others))]
            shutil.copyfile(other, file)
            return f"that of {other.parent.name} as {name}"
    if kind == "remove":
        file.unlink()
        if rng.random() < 0.3:
            file.mkdir()
            return f"a folder as {name}"
        return f"removed {name}"
    if kind == "cut" and content:
        file.write_bytes(content[: int(rng.integers(len(content)))])
        return f"cut {name}"
    if kind == "more":
        file.write_bytes(content + rng.bytes(int(rng.integers(1, 20))))
        return f"more bytes in {name}"
    if kind == "empty" or not content:
        file.write_bytes(b"")
        return f"emptied {name}"
    damaged = bytearray(content)
    for _ in range(int(rng.choice([1, 1, 1, 3]))):
        bit = int(rng.integers(8 * len(damaged)))
        damaged[bit // 8] ^= 1 << bit % 8
    file.write_bytes(bytes(damaged))
    return f"flipped bit {bit} of {name}"


def _changed_json(rng: np.random.Generator, value: Any) -> Any:
    """One value somewhere inside replaced, or one key removed."""
    if isinstance(value, dict) and value and rng.random() < 0.85:
        key = sorted(value)[rng.integers(len(value))]
        if rng.random() < 0.2:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _changed_json(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.85:
        i = int(rng.integers(len(value)))
        return [*value[:i], _changed_json(rng, value[i]), *value[i + 1 :]]
    junk = [None, -1, 0, 1e300, "word", [], {}, True, [None], {"a": 1}, "../../etc", float("nan")]
    return junk[rng.integers(len(junk))]


def _protocol(rng: np.random.Generator, place: Path, score: Score) -> None:
    """A protocol with values changed: its runs are listed, or an LLPError."""
    values = protocol_file.load(("bird-cat", "digits")[rng.integers(2)]).to_dict()
    changed = values
    for _ in range(int(rng.integers(1, 4))):
        changed = _changed_json(rng, changed)
    file = place / "protocol.yaml"
    file.write_text(yaml.safe_dump(changed))
    info = {"use": "reproduce", "changed": _difference(values, changed)}
    out = str(place / "results")
    found, _ = attempt(
        lambda: _command(["reproduce", str(file), "--dry-run", "--out", out]), **info
    )
    if found is None:
        score.refuse()
        return
    code, _, err = found
    if code == 0:
        score.confirm()
    elif err.strip() and "Traceback" not in err:
        score.refuse()
    else:
        fail(f"status {code} without a message", **info)


def _difference(one: Any, two: Any, where: str = "") -> list[str]:
    if isinstance(one, dict) and isinstance(two, dict):
        gone = [f"{where}.{key} is gone" for key in one if key not in two]
        both = [_difference(one[key], two[key], f"{where}.{key}") for key in one if key in two]
        return gone + [line for lines in both for line in lines]
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        parts = enumerate(zip(one, two, strict=True))
        return [line for i, (a, b) in parts for line in _difference(a, b, f"{where}[{i}]")]
    return [] if one == two else [f"{where}: {str(one)[:40]!r} became {two!r}"]
