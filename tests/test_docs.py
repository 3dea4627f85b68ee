"""Every Python example of the README, the tutorial and the page on messages runs as it is written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md", "docs/messages.md", "docs/transcript.md"])
def test_examples_run(page: str, tmp_path: Path) -> None:
    # In order, in one process, as a reader types them.
    code = "\n".join(BLOCK.findall((ROOT / page).read_text(encoding="utf-8")))
    assert code.count("import") >= 2
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    script = tmp_path / "page.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
