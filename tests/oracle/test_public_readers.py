"""The four public readers open what we write, with right counts and token totals (WIRE.md §3).

claude-agent-sdk, claude-code-log and claude-code-transcripts are Python packages (extra ``dev``). ccusage runs under
Node: its program is looked for in ``TURNSTREAM_CCUSAGE`` (a folder with ``node_modules``), ``build/ccusage`` and on
``PATH``; without it (``npm install --prefix build/ccusage ccusage@20.0.24``) its tests are skipped.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import recordings
import sample_session
from harness import run
from sample_session import KEYS, Sample, write_sample
from transcripts import SESSION

from turnstream.sinks.transcript import TranscriptSink, session_path
from turnstream.testing import run_virtual

CCUSAGE = "20.0.24"
CAMEL = ("inputTokens", "outputTokens", "cacheCreationTokens", "cacheReadTokens")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder.resolve()


def written(root: Path, cwd: Path, *, compaction: bool = False, fillers: bool = False) -> Sample:
    path = session_path(root, cwd, SESSION)
    sample = write_sample(path, compaction=compaction, cwd=str(cwd), git_branch="main")
    assert sample.open_bytes != path.read_bytes(), "closing drops the fillers"
    if fillers:
        path.write_bytes(sample.open_bytes)
    return sample


both = pytest.mark.parametrize("fillers", [False, True], ids=["closed", "with-fillers"])


@both
def test_claude_agent_sdk(root: Path, cwd: Path, fillers: bool) -> None:
    sdk = pytest.importorskip("claude_agent_sdk")
    sample = written(root, cwd, fillers=fillers)
    (info,) = sdk.list_sessions(directory=str(cwd))
    assert (info.session_id, info.custom_title, info.git_branch) == (SESSION, "A sample", "main")
    assert info.first_prompt.startswith("0: what is in the files? ✅")
    found = sdk.get_session_messages(SESSION, directory=str(cwd))
    assert {m.uuid for m in found} == set(sample.said), "parallel calls and all their results, nothing taken back"
    assert len(found) == len(sample.said)
    usage = {m.message["id"]: m.message["usage"] for m in found if m.type == "assistant"}
    assert {key: sum(each[key] for each in usage.values()) for key in KEYS} == sample.tokens


def test_claude_agent_sdk_after_a_compaction(root: Path, cwd: Path) -> None:
    sdk = pytest.importorskip("claude_agent_sdk")
    sample = written(root, cwd, compaction=True)
    found = [m.uuid for m in sdk.get_session_messages(SESSION, directory=str(cwd))]
    summary = sample.said[0]
    assert found[0] == summary
    # It knows nothing of preserved segments: it sees the summary and what was said after it.
    assert found == [uuid for uuid in sample.said if uuid == summary or _line(sample, uuid) > _line(sample, summary)]


def _line(sample: Sample, uuid: str) -> int:
    return sample.open_bytes.index(f'"uuid":"{uuid}"'.encode())


@both
def test_claude_code_log(root: Path, cwd: Path, fillers: bool, capsys: pytest.CaptureFixture[str]) -> None:
    converter = pytest.importorskip("claude_code_log.converter")
    sample = written(root, cwd, fillers=fillers)
    entries = converter.load_transcript(sample.path)
    said = capsys.readouterr().out.lower()
    assert "error" not in said
    assert [e.uuid for e in entries if e.type in ("user", "assistant")] == sample.said
    totals = converter.compute_project_aggregates(entries)
    # Its own sums, one usage for each request.
    assert [totals[f"total_{name}_tokens"] for name in ("input", "output", "cache_creation", "cache_read")] == [
        sample.tokens[key] for key in KEYS
    ]


def test_claude_code_log_renders_it(root: Path, cwd: Path, tmp_path: Path) -> None:
    converter = pytest.importorskip("claude_code_log.converter")
    sample = written(root, cwd, compaction=True)
    page = converter.convert_jsonl_to_html(sample.path, tmp_path / "out.html").read_text(encoding="utf-8")
    for prompt in sample.prompts:
        assert prompt.split(" ✅")[0] in page
    assert "forget this" not in page
    assert "never never" not in page


@both
def test_claude_code_transcripts(root: Path, cwd: Path, tmp_path: Path, fillers: bool) -> None:
    reader = pytest.importorskip("claude_code_transcripts")
    sample = written(root, cwd, fillers=fillers)
    lines = reader.parse_session_file(sample.path)["loglines"]
    assert len(lines) == len(sample.said)
    usage = {line["message"]["id"]: line["message"]["usage"] for line in lines if line["type"] == "assistant"}
    assert {key: sum(each[key] for each in usage.values()) for key in KEYS} == sample.tokens
    (found,) = reader.find_local_sessions(root / "projects")
    assert found[0] == sample.path
    assert found[1].startswith("0: what is in the files? ✅")
    reader.generate_html(sample.path, tmp_path / "html")
    index = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    counts = re.search(r"(\d+) prompts · (\d+) messages · (\d+) tool calls", index)
    assert counts is not None, "the summary of its index page"
    assert [int(count) for count in counts.groups()] == [len(sample.prompts), len(sample.said), sample.tools]


# -- ccusage ---------------------------------------------------------------------------------------------


@cache
def ccusage() -> list[str]:
    """The command, or skip."""
    if shutil.which("node") is None:
        pytest.skip("no node: ccusage isn't tried")
    folders = [os.environ.get("TURNSTREAM_CCUSAGE"), recordings.ROOT / "build" / "ccusage"]
    for folder in folders:
        program = Path(folder) / "node_modules" / ".bin" / "ccusage" if folder else None
        if program is not None and program.exists():
            return [str(program)]
    found = shutil.which("ccusage")
    if found is None:
        pytest.skip(f"no ccusage: npm install --prefix build/ccusage ccusage@{CCUSAGE} (or set TURNSTREAM_CCUSAGE)")
    return [found]


def totals(root: Path, tmp_path: Path) -> dict[str, Any]:
    """What ``ccusage claude session`` says."""
    command = [*ccusage(), "claude", "session", "--json", "--offline"]
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "CLAUDE_CONFIG_DIR": str(root), "TZ": "UTC"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("compaction", [False, True])
@both
def test_ccusage(root: Path, cwd: Path, tmp_path: Path, fillers: bool, compaction: bool) -> None:
    ccusage()
    sample = written(root, cwd, fillers=fillers, compaction=compaction)
    answer = totals(root, tmp_path)
    (session,) = answer["sessions"]
    assert session["sessionId"] == SESSION
    assert session["modelsUsed"] == [sample_session.MODEL]
    for said in (session, answer["totals"]):
        assert [said[key] for key in CAMEL] == [sample.tokens[key] for key in KEYS]
        assert said["totalTokens"] == sum(sample.tokens.values())


COMPLETE = [
    name
    for name, rows in (recordings.expected().items() if recordings.folder() else ())
    if name.endswith(".sse")
    and len(rows) == 1
    and rows[0]["outcome"] == "complete"
    and rows[0]["model"].startswith("claude-")
    and int(rows[0]["blocks"]) > 0
]


def test_ccusage_counts_recorded_streams(root: Path, cwd: Path, tmp_path: Path) -> None:
    """All complete recordings of one answer as one session's transcripts: the sums of EXPECTED.tsv."""
    recordings.need("what ccusage counts of recorded streams")
    ccusage()
    expected: dict[str, list[int]] = {}
    seen: set[str] = set()
    for number, name in enumerate(COMPLETE):
        (row,) = recordings.expected()[name]
        if row["message_id"] in seen:
            continue
        seen.add(row["message_id"])
        session = f"{number:08x}-0000-4000-8000-000000000000"

        async def write(name: str = name, session: str = session) -> None:
            sink = TranscriptSink(session_path(root, cwd, session), cwd=str(cwd))
            sink.on_next(run(recordings.read(name), settled=False))
            await sink.aclose()

        run_virtual(write())
        own = [int(row[key]) if row[key].isdigit() else 0 for key in KEYS]
        expected[session] = [a + b for a, b in zip(own, _of_advisors(recordings.read(name)), strict=True)]
    assert len(seen) > 50
    found = {one["sessionId"]: [one[key] for key in CAMEL] for one in totals(root, tmp_path)["sessions"]}
    # It doesn't list a session without tokens.
    assert found == {session: tokens for session, tokens in expected.items() if any(tokens)}


def _of_advisors(data: bytes) -> list[int]:
    """Tokens of another model that answered within the answer: the usage has them apart, ccusage adds them."""
    last: list[dict[str, Any]] = []
    for line in data.decode("utf-8", "replace").split("\n"):
        if line.startswith("data:") and '"iterations":[' in line:
            last = json.loads(line[5:]).get("usage", {}).get("iterations") or []
    return [sum(one.get(key, 0) for one in last if one.get("type") == "advisor_message") for key in KEYS]
