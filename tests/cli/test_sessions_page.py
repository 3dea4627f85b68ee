"""docs/sessions.md does what it says: its examples run in order, its commands print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "sessions.md"
BLOCK = re.compile(r"^```(python|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
# The fork's id is new each time, and so are sizes that depend on the version's digits.
CHANGING = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[\d.]+ (bytes|KB)")


def test_the_page_runs_as_it_is_written(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "TZ": "UTC", "PYTHONUTF8": "1"}
    environment.pop("TURNSTREAM_ROOT", None)

    def run(arguments: list[str]) -> str:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=environment,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), arguments
        return done.stdout

    earlier = ""
    ran = 0
    for kind, body in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            # Names of earlier blocks are known; what those did isn't done again.
            wanted = ("import ", "from ", "path =") if "(path" in body else ("import ", "from ")
            imports = "\n".join(line for line in earlier.splitlines() if line.startswith(wanted))
            out = run(["-c", f"{imports}\n{body}"])
            assert out or "print" not in body
            earlier += body
            ran += 1
            continue
        for command, shown in re.findall(r"^\$ turnstream ([^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", body, re.MULTILINE):
            out = run(["-m", "turnstream", *shlex.split(command)])
            assert sorted(CHANGING.sub("*", out).splitlines()) == sorted(CHANGING.sub("*", shown).splitlines()), command
            ran += 1
    assert ran >= 8
