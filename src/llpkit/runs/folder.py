"""Where a run keeps its files until it is finished, and how it moves to its final place.

Everything but the run directory itself is in one hidden folder next to it, marked as llpkit's:
``work`` is the run so far, ``old`` a run that is being replaced, and ``trash`` what is being
removed. A run is finished once its list of checksums includes the page, which is written last. Two
renames then move it into place. After a kill at any point, the next process can tell from these
folders how to continue, and the only copy of a run is never removed.
"""

import json
import os
import shutil
from pathlib import Path

from llpkit._validation import option
from llpkit.errors import LLPError
from llpkit.files import (
    CHECKSUMS,
    Checksums,
    add_checksums,
    beside,
    files_in,
    is_ours,
    read_regular,
    rename,
    write_text,
    writing,
)
from llpkit.training.fitting import CHECKPOINT

REPORT, FIGURES = "report.html", "figures"
_MARK = "llpkit.json"
_ABOUT = {"written by": "llpkit", "what": "a run under way; llpkit removes this folder at its end"}


class RunFolder:
    """A run directory and the folder next to it. The caller holds the lock of the directory.

    Args:
        out: The run directory.
    """

    def __init__(self, out: Path) -> None:
        # A link is followed, so that the run replaces the folder and not the link.
        self.out = Path(os.path.realpath(out)) if out.is_symlink() else out
        self.home = beside(out, ".llpkit")
        self.work, self._old, self._trash = (self.home / n for n in ("work", "old", "trash"))
        if self.home.exists() and not self._is_ours():
            raise LLPError(
                f"{self.home} was not made by llpkit, but a run would keep its files there; move "
                "it, or choose another run directory"
            )

    def _is_ours(self) -> bool:
        try:
            return bool(json.loads(read_regular(self.home / _MARK)) == _ABOUT)
        except (OSError, ValueError):
            # The process was killed after it made the folder and before it marked it, or while it
            # removed the folder: then nothing but our own temporary files may be in it.
            return self.home.is_dir() and all(is_ours(path.name) for path in self.home.iterdir())

    @property
    def finished(self) -> bool:
        """Whether the run in the working folder is finished and only has to be moved."""
        found = Checksums.read(self.work)
        return found is not None and REPORT in found.files and found.whole()

    @property
    def kept(self) -> bool:
        """Whether there is a checkpoint or a finished run to continue from."""
        return (self.work / CHECKPOINT).exists() or self.finished

    def recover(self, force: bool) -> bool:
        """Complete what a killed process began; returns whether that published a finished run.

        An existing run is replaced only with ``force``.
        """
        if not self.home.exists():
            return False
        self._remove(self._trash)
        # Killed between finish and the last rename: only publishing is left.
        if self.finished:
            if self.out.exists() and not force:
                return False
            self.publish()
            return True
        if self._old.exists():
            # The kill came between the two renames of publish, or after both.
            if self.out.exists():
                self._drop(self._old)
            else:
                rename(self._old, self.out)
        if not self.kept:
            self.clear()
        return False

    def begin(self) -> None:
        """Make the folder to work in."""
        with writing(self.home):
            self.home.mkdir(parents=True, exist_ok=True)
            write_text(self.home / _MARK, json.dumps(_ABOUT))
            self.work.mkdir(exist_ok=True)

    def finish(self) -> None:
        """Write the checksums of all files, which marks the run as finished."""
        with writing(self.work):
            # Temporary files of a killed process must not be listed as part of the run.
            for path in self.work.rglob("*"):
                if is_ours(path.name):
                    path.unlink()
        names = [path.relative_to(self.work).as_posix() for path in files_in(self.work)]
        add_checksums(self.work, [name for name in names if name not in (CHECKPOINT, CHECKSUMS)])

    def publish(self) -> None:
        """Move a finished run into place; the run that it replaces is removed last."""
        with writing(self.work):
            (self.work / CHECKPOINT).unlink(missing_ok=True)
        if self.out.exists():
            self.check_replaceable()
            self._drop(self._old)
            # Two renames: at every moment a complete run is in out, old or work.
            rename(self.out, self._old)
        rename(self.work, self.out)
        self.clear()

    def check_replaceable(self) -> None:
        """Refuse to remove what llpkit did not write."""
        found = Checksums.read(self.out)
        if found is None or REPORT not in found.files:
            raise LLPError(
                f"{self.out} has no {CHECKSUMS} that lists its files as llpkit's, so "
                f"{option('force', True)} does not replace it; remove it yourself, or choose "
                "another directory"
            )
        if foreign := found.foreign():
            raise LLPError(
                f"{foreign[0]} was not written by the run in {self.out}, so "
                f"{option('force', True)} does not replace it; move the file, or choose "
                "another directory"
            )

    def clear(self) -> None:
        """Remove the folder next to the run directory, its mark last."""
        if not self.home.exists():
            return
        for part in (self.work, self._old, self._trash):
            self._drop(part)
        with writing(self.home):
            left = [path for path in self.home.iterdir() if path.name != _MARK]
            # A file that llpkit did not write keeps the folder, and the mark stays with it.
            if all(is_ours(path.name) for path in left):
                for path in (*left, self.home / _MARK):
                    path.unlink(missing_ok=True)
                self.home.rmdir()

    def _drop(self, part: Path) -> None:
        """Remove a part atomically: renamed first, so a kill never leaves half of it in place."""
        self._remove(self._trash)
        if part.exists():
            rename(part, self._trash)
            self._remove(self._trash)

    def _remove(self, folder: Path) -> None:
        with writing(folder):
            if folder.exists():
                shutil.rmtree(folder)
