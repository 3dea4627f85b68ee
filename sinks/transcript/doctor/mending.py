"""Looking at a transcript, and replacing it by a mended one (WIRE.md §3; FAULTS.md group D)."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path
from typing import BinaryIO, Final

from turnstream.messages.errors import TranscriptError
from turnstream.sinks.transcript.doctor.entries import Entry
from turnstream.sinks.transcript.doctor.judge import judge
from turnstream.sinks.transcript.doctor.report import Report
from turnstream.sinks.transcript.doctor.rewrite import Rejects, rewrite
from turnstream.sinks.transcript.doctor.survey import Survey
from turnstream.sinks.transcript.fillers import sync_folder
from turnstream.sinks.transcript.lockfile import SessionLock

__all__ = ["diagnose", "repair"]

_PASSES: Final = 6
"""What mending one fault brings to light is mended by the next pass; two are the most that was ever met."""
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


def diagnose(path: str | os.PathLike[str]) -> Report:
    """Say what is wrong with a transcript; nothing is changed.

    One pass, linear in the file; memory: about 1 KB a record, and one line. The file of a session that is
    being written may be looked at; what a later line would make good is then found, too.

    Args:
        path: of the transcript.

    Returns:
        The findings, in the order of the file; see :data:`turnstream.sinks.transcript.doctor.KINDS`.

    Raises:
        TranscriptError: it can't be read, or is no regular file.
    """
    path = Path(path)
    try:
        _check(path, os.stat(path))
        return _examine(path, path).report
    except OSError as error:
        raise TranscriptError(f"the transcript can't be read: {error.strerror}", file=str(path)) from error


def repair(path: str | os.PathLike[str]) -> Report:
    """Mend a transcript. Nothing is lost: the original stays beside it as ``<name>.bak``.

    What can't be read goes to ``<name>.rejected`` (both are numbered if the name is taken); lines that are in order
    keep their bytes. The mended file is written beside the old one, looked at again, made durable and then put in
    its place by a rename: whatever happens, the path holds the whole old or the whole new file. A mended file has no
    findings. A file in which nothing is found isn't touched.

    Args:
        path: of the transcript.

    Returns:
        What was found before, and where everything is now.

    Raises:
        TranscriptError: it can't be read or replaced; somebody writes it; it is a symlink; it holds no record, so
            it is no transcript.
    """
    path = Path(path)
    lock: SessionLock | None = None
    try:
        _check(path, os.stat(path, follow_symlinks=False))
        lock = SessionLock(path)
        lock.acquire()
        return _Repair(path).run()
    except OSError as error:
        raise TranscriptError(
            f"the transcript can't be mended: {error.strerror or error}", file=str(path), hint="it is as it was"
        ) from error
    finally:
        if lock is not None:
            lock.release()


def _check(path: Path, there: os.stat_result) -> None:
    if stat.S_ISLNK(there.st_mode):
        raise TranscriptError("the transcript is a symlink, which is never followed", file=str(path))
    if not stat.S_ISREG(there.st_mode):
        raise TranscriptError("the transcript is no regular file", file=str(path))


def _examine(path: Path, transcript: Path) -> Survey:
    """Both kinds of rules; ``path`` is looked at as if it were at ``transcript``."""
    survey = Survey(path, transcript).read()
    survey.report.path = transcript
    with open(path, "rb") as file:

        def read(entry: Entry) -> bytes:
            file.seek(entry.offset)
            return file.read(entry.size)

        judge(survey, read)
    return survey


class _Repair:
    """One repair, under the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.before = os.stat(path)
        self.rejects = Rejects(_free(path, "rejected"), stat.S_IMODE(self.before.st_mode))
        self.made: list[Path] = []  # what must go if it fails
        self.side_files: list[Path] = []

    def run(self) -> Report:
        survey = _examine(self.path, self.path)
        report = survey.report
        if not report.findings:
            return report
        if not report.records:
            raise TranscriptError(
                "the file holds no record", file=str(self.path), hint="is it a transcript? nothing was changed"
            )
        try:
            mended = self._mend(survey)
            self.rejects.close()
            self._unchanged()
            report.backup = self._back_up()
            os.replace(mended, self.path)
        except BaseException:
            self._clean()
            raise
        sync_folder(self.path.parent)
        report.repaired = True
        report.rejected = self.rejects.path if self.rejects.made else None
        report.side_files = self.side_files
        return report

    def _mend(self, survey: Survey) -> Path:
        """Pass after pass, until nothing is found."""
        source = self.path
        for turn in range(1, _PASSES + 1):
            self.rejects.turn = turn
            target = self.path.with_name(f".{self.path.name}.doctor-{turn}.tmp")
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target)  # of a repair that was killed
            with self._create(target) as file:
                self.side_files += rewrite(source, file, survey.plan, rejects=self.rejects, transcript=self.path)
                file.flush()
                os.fsync(file.fileno())
            if source != self.path:
                os.unlink(source)
            source = target
            survey = _examine(target, self.path)
            if not survey.report.findings:
                return target
        left = ", ".join(survey.report.counts)
        raise TranscriptError(
            f"the transcript can't be mended wholly: {left} would be left", file=str(self.path), hint="it is as it was"
        )

    def _create(self, target: Path) -> BinaryIO:
        fd = os.open(target, _NEW, 0o600)
        self.made.append(target)
        if hasattr(os, "fchmod"):
            os.fchmod(fd, stat.S_IMODE(self.before.st_mode))
            with contextlib.suppress(OSError):
                os.fchown(fd, self.before.st_uid, self.before.st_gid)
        return os.fdopen(fd, "wb", buffering=1 << 18)

    def _unchanged(self) -> None:
        now = os.stat(self.path, follow_symlinks=False)
        if (now.st_ino, now.st_size, now.st_mtime_ns) != (
            self.before.st_ino,
            self.before.st_size,
            self.before.st_mtime_ns,
        ):
            raise TranscriptError(
                "somebody wrote to the transcript meanwhile", file=str(self.path), hint="end that session first"
            )

    def _back_up(self) -> Path:
        """Give the original a second name; where there are no links, copy it."""
        backup = _free(self.path, "bak")
        try:
            os.link(self.path, backup)
        except FileExistsError:
            raise
        except OSError:
            shutil.copy2(self.path, backup)
        self.made.append(backup)
        fd = os.open(backup, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        return backup

    def _clean(self) -> None:
        with contextlib.suppress(OSError):
            self.rejects.close()
        made = [*self.made, *self.side_files, *([self.rejects.path] if self.rejects.made else [])]
        for path in made:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _free(path: Path, suffix: str) -> Path:
    """``<name>.<suffix>``, numbered from 2 if that is there."""
    free = path.with_name(f"{path.name}.{suffix}")
    number = 2
    while os.path.lexists(free):
        free = path.with_name(f"{path.name}.{suffix}.{number}")
        number += 1
    return free
