"""Every whole Python example of the README and the docs runs as it is written; fragments are Python and name what is there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    "README.md",
    *(f"docs/{name}.md" for name in ("tutorial", "messages", "transcript", "serve", "record")),
]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
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


@pytest.mark.parametrize("page", [path.name for path in sorted((ROOT / "docs").glob("*.md"))])
def test_fragments_are_python_and_import_what_is_there(page: str) -> None:
    """Recipes leave out what a reader has; the rest must be true."""
    for block in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        tree = ast.parse(block, page)
        compile(block, page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                module = importlib.import_module(node.module)
                for name in node.names:
                    there = hasattr(module, name.name) or importlib.util.find_spec(f"{node.module}.{name.name}")
                    assert there, f"{page}: {node.module} has no {name.name}"


def test_links_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
