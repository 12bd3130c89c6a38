"""Whether a run may start in a directory: what a stopped or finished run there allows."""

from pathlib import Path

from llpkit._validation import option
from llpkit.config import Config, Values, check, read
from llpkit.errors import LLPError
from llpkit.files import Checksums, locked
from llpkit.runs.folder import RunFolder

CONFIG = "config.yaml"


def check_folder(config: Config, folder: RunFolder, resume: bool, force: bool) -> None:
    """Refuse to replace or lose a run without ``force``; with it, drop an unfinished one."""
    out, stopped = folder.out, folder.kept
    if out.exists():
        _check_replaceable(folder, force)
    if stopped and resume:
        _check_settings(Checksums.need(folder.work).check(CONFIG), config, out)
    elif stopped and force:
        folder.clear()
    elif stopped:
        raise LLPError(
            f"{out} holds a run that was stopped; continue it with {option('resume', True)}, or "
            f"start again with {option('force', True)}"
        )


def _check_replaceable(folder: RunFolder, force: bool) -> None:
    out, replace = folder.out, option("force", True)
    if not (out / CONFIG).exists():
        more = f", so {replace} does not replace it" if force else ""
        raise LLPError(
            f"{out} exists and is not a run{more}; choose another directory with {option('out')}"
        )
    if not force:
        if folder.kept:
            raise LLPError(
                f"{out} exists, and the run to replace it was stopped; continue with "
                f"{option('resume', True)} {replace}, or start it again with {replace}"
            )
        raise LLPError(
            f"{out} exists; choose another directory with {option('out')}, or replace it: {replace}"
        )
    folder.check_replaceable()


def saved_settings(out: Path, *, force: bool) -> Values:
    """The settings of the stopped run, else of the finished one; empty if there is neither.

    With ``force`` a finished run is to be replaced, so its settings do not count.
    """
    folder = RunFolder(out)
    if folder.kept:
        saved = folder.work
    elif (out / CONFIG).exists() and not force:
        saved = out
    else:
        return {}
    return read(Checksums.need(saved).check(CONFIG))


def nothing_to_resume(out: Path, *, leads: bool) -> bool:
    """Whether the run is finished and none was started to replace it.

    If this process ``leads``, it also removes what a killed one left behind. Other processes of the
    same run must not try: they would compete for the lock.
    """
    folder = RunFolder(out)
    if folder.kept or not (out / CONFIG).exists():
        return False
    if leads and folder.home.exists():
        with locked(out):
            folder.recover(force=False)
    return True


def _check_settings(file: Path, config: Config, out: Path) -> None:
    for key, (before, now) in differing(file, config).items():
        name = option(key.removeprefix("data."))
        raise LLPError(
            f"the run in {out} has {name} = {before!r}, but this one has {now!r}; resume it with "
            f"its own settings, or start again with {option('force', True)}"
        )


def differing(file: Path, config: Config) -> dict[str, tuple[object, object]]:
    """Settings that determine the result and differ from a file: their values there and here."""
    saved = check(read(file))
    pairs = {
        prefix + name: (value, getattr(new, name))
        for prefix, old, new in (
            ("", saved.recipe, config.recipe),
            ("", saved.estimator, config.estimator),
            ("", saved.split, config.split),
            ("data.", saved.data, config.data),
        )
        for name, value in old.to_dict().items()
    }
    return {name: (old, new) for name, (old, new) in pairs.items() if old != new}
