"""Whether a run may start in a directory: what a stopped or finished run there allows."""

import json
from pathlib import Path

from llpkit._validation import option
from llpkit.config import Config, Values, check, read
from llpkit.errors import LLPError
from llpkit.files import Checksums, locked, read_regular
from llpkit.runs.folder import RunFolder

CONFIG = "config.yaml"


def check_place(config: Config, place: RunFolder, resume: bool, force: bool) -> None:
    """Refuse to replace or lose a run without ``force``; with it, drop an unfinished one."""
    out, stopped = place.out, place.kept
    if out.exists() and not (out / CONFIG).exists():
        more = ", so --force does not replace it" if force else ""
        raise LLPError(f"{out} exists and is not a run{more}; choose another directory with --out")
    if out.exists() and not force:
        if stopped:
            raise LLPError(
                f"{out} exists, and the run to replace it was stopped; continue with --resume "
                "--force, or start it again with --force"
            )
        if resume:
            raise LLPError(f"{out} is finished; there is nothing to resume")
        raise LLPError(f"{out} exists; choose another directory with --out, or replace it: --force")
    if out.exists():
        place.check_replaceable()
    if stopped and not resume:
        if not force:
            raise LLPError(
                f"{out} holds a run that was stopped; continue it with --resume, or start again "
                "with --force"
            )
        place.clear()
    elif stopped:
        _same_settings(Checksums.need(place.work).check(CONFIG), config, out)


def unfinished(out: Path) -> Values | None:
    """The settings of a stopped run, if there is one."""
    place = RunFolder(out)
    if not place.kept:
        return None
    return read(Checksums.need(place.work).check(CONFIG))


def nothing_to_resume(out: Path) -> bool:
    """Whether the run is finished and none was started to replace it; an error if in use."""
    if not out.exists() and not RunFolder(out).home.exists():
        return False
    with locked(out):
        place = RunFolder(out)
        place.recover(force=False)
        return (out / CONFIG).exists() and not place.kept


def _same_settings(file: Path, config: Config, out: Path) -> None:
    for key, (before, now) in differing(file, config).items():
        name = option(key.removeprefix("data."))
        raise LLPError(
            f"the run in {out} has {name} = {before!r}, but this one has {now!r}; resume it with "
            "its own settings, or start again with --force"
        )


def differing(file: Path, config: Config) -> dict[str, tuple[object, object]]:
    """Settings that determine the result and differ from a file: their values there and here."""
    before = check(read(file))
    sections = ((before.recipe, config.recipe), (before.choice, config.choice))
    pairs = [(k, v, getattr(new, k)) for old, new in sections for k, v in old.to_dict().items()]
    data = before.data.to_dict().items()
    pairs += [(f"data.{key}", value, getattr(config.data, key)) for key, value in data]
    return {key: (old, new) for key, old, new in pairs if old != new}


def data_checksum(file: Path) -> str:
    """The checksum of the data in a record."""
    try:
        return str(json.loads(read_regular(file))["data"]["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LLPError(f"{file} is damaged; start the run again with --force") from error


def same_data(file: Path, record: Values) -> None:
    """Refuse to resume a run whose data have changed."""
    before, now = data_checksum(file), record["data"]["sha256"]
    if before != now:
        raise LLPError(
            f"the data changed since the run began (checksum {before[:12]} in {file}, now "
            f"{now[:12]}); start again with --force"
        )
