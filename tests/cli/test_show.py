"""``turnstream show``, as a user calls it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import recordings
from sessions import assistant, at, record, result, session_id, talk, use, user, write

from turnstream.cli import main


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    status = main(["show", *map(str, arguments)])
    out, err = capsys.readouterr()
    return status, out.splitlines(), err


CONVERSATION = [
    {"type": "custom-title", "customTitle": "A \x1b]0;talk", "sessionId": session_id(1)},
    user("u-1", "Read both", timestamp=at(3)),
    assistant("a-1", use("t-1", path="a.py"), "u-1"),
    assistant("a-2", use("t-2", path="b.py"), "a-1"),
    user("r-2", [result("t-2", "bbb\n\x1b[2J")], "a-2"),
    user("r-1", [result("t-1", "aaa")], "a-1"),
    user("m-1", "for the model", "r-2", isMeta=True),
    assistant("a-3", "Done.", "m-1", answer="msg_2"),
]
HEAD = ["A \\x1b]0;talk", f"{session_id(1)}  /src/demo  2025-06-01T10:03:00.000Z", ""]
BODY = [
    "> Read both",
    '● Read({"path":"a.py"})',
    "  ⎿ aaa",
    '● Read({"path":"b.py"})',
    "  ⎿ bbb",
    "    \\x1b[2J",
    "Done.",
]


def test_a_session_and_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, 1, *CONVERSATION)
    assert shown(capsys, path) == (0, HEAD + BODY, "")
    assert shown(capsys, session_id(1)[:4], "--root", tmp_path) == (0, HEAD + BODY, "")


COMPACTED = [
    user("u-1", "Before"),
    assistant("a-1", "Long", "u-1"),
    record("system", "b-1", None, subtype="compact_boundary", logicalParentUuid="a-1", compactMetadata={}),
    user("s-1", "Summed up", "b-1", isCompactSummary=True, isVisibleInTranscriptOnly=True),
    user("u-2", "After", "s-1"),
    assistant("a-2", "Short", "u-2", answer="msg_2"),
]


def test_since_the_last_compaction_or_in_full(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, 1, *COMPACTED)
    _, now, _ = shown(capsys, path)
    line = "── Conversation compacted - full history: "
    assert now[-3:] == [f"{line}turnstream show --full ".ljust(80, "─"), "> After", "Short"]
    assert "Before" not in "\n".join(now)
    _, full, _ = shown(capsys, path, "--full")
    assert full[-6:] == ["> Before", "Long", f"{line}above ".ljust(80, "─"), "> Summed up", "> After", "Short"]


def test_branches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, 1, *talk(1), user("u-2", "One way", "a-1"), user("u-3", "Another", "a-1"))
    status, out, err = shown(capsys, path)
    assert (status, out[-3:]) == (0, ["> Hello", "Hi", "> Another"])
    assert err == "turnstream: 1 other branch: --at u-2\n"
    assert shown(capsys, path, "--at", "u-2")[1][-3:] == ["> Hello", "Hi", "> One way"]
    status, out, err = shown(capsys, path, "--at", "nobody")
    assert (status, out) == (2, [])
    assert "nobody isn't in the file" in err


def test_bad_lines_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = talk(1)
    path = write(tmp_path, 1, first, b"{torn", second, b"\xff\xfe", b'{"type":"user","mess')
    status, out, err = shown(capsys, path)
    assert (status, out[-2:]) == (0, ["> Hello", "Hi"])
    assert f"3 lines of {path} can't be read; the first is line 2, byte " in err


def test_nothing_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, 1, {"type": "summary", "summary": "s"}, b"garbage")
    status, out, err = shown(capsys, path)
    assert (status, out) == (1, [])
    assert f"{path} holds no message of a conversation, but 1 summary; 1 bad line" in err
    status, out, err = shown(capsys, "abc", "--root", tmp_path)
    assert (status, out) == (2, [])
    assert "no session 'abc'" in err
    assert shown(capsys, tmp_path / "none.jsonl")[0] == 2


def test_an_ascii_terminal(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *CONVERSATION, user("u-9", "日本語", "a-3"))
    done = subprocess.run(
        [sys.executable, "-m", "turnstream", "show", str(path)],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert done.stdout.decode("ascii").splitlines()[-1] == "> ???"


# -- in a terminal -------------------------------------------------------------------------------------


def in_a_terminal(path: Path, *options: str, **environment: str) -> tuple[int, str]:
    """Status and what the terminal got."""
    main_end, terminal = pty.openpty()
    clean = {k: v for k, v in os.environ.items() if k not in ("PAGER", "NO_COLOR", "LESS", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "turnstream", "show", str(path), *options],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={**clean, "TERM": "xterm", "PYTHONUTF8": "1", **environment},
    )
    os.close(terminal)
    out = b""
    while True:
        try:
            data = os.read(main_end, 1 << 16)
        except OSError:
            break
        if not data:
            break
        out += data
    os.close(main_end)
    return process.wait(timeout=60), out.decode().replace("\r\n", "\n")


def pager(tmp_path: Path, body: str) -> str:
    script = tmp_path / "pager script.py"
    script.write_text(f"import os, sys\n{body}\n")
    return f"'{sys.executable}' '{script}' an-argument"


def test_the_pager_gets_it_with_colours(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *talk(1))
    body = "data = sys.stdin.read()\nprint(sys.argv[1], os.environ['LESS'], ascii(data[-21:]))"
    status, out = in_a_terminal(path, PAGER=pager(tmp_path, body))
    assert status == 0
    assert out == "an-argument FRX " + ascii("\n\n\x1b[1m> Hello\x1b[0m\nHi\n"[-21:]) + "\n"


def test_less_is_the_usual_pager(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *talk(1))
    less = tmp_path / "bin" / "less"
    less.parent.mkdir()
    less.write_text(f"#!{sys.executable}\nimport sys\nprint(sys.argv[1:], len(sys.stdin.read()) > 40)\n")
    less.chmod(0o755)
    assert in_a_terminal(path, PATH=f"{less.parent}:{os.environ['PATH']}") == (0, "['-R'] True\n")


def test_whoever_leaves_the_pager_early_has_seen_enough(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *[user(f"u-{n}", "x" * 5000, f"u-{n - 1}" if n else None) for n in range(500)])
    status, out = in_a_terminal(path, PAGER=pager(tmp_path, "sys.stdin.readline(); print('left')"))
    assert (status, out) == (0, "left\n")


@pytest.mark.parametrize("chosen", ["", "cat", "/nowhere/pager", "'unbalanced"])
def test_without_a_pager(tmp_path: Path, chosen: str) -> None:
    path = write(tmp_path, 1, *talk(1))
    status, out = in_a_terminal(path, PAGER=chosen)
    assert status == 0
    assert out.endswith("\x1b[1m> Hello\x1b[0m\nHi\n")


def test_no_pager_and_no_colour_when_told(tmp_path: Path) -> None:
    path = write(tmp_path, 1, *talk(1))
    trap = pager(tmp_path, "print('the pager ran')")
    status, out = in_a_terminal(path, "--no-pager", PAGER=trap, NO_COLOR="1")
    assert (status, out.splitlines()[-2:]) == (0, ["> Hello", "Hi"])
    assert "\x1b" not in out


def test_a_pipe_gets_no_pager(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("PAGER", pager(tmp_path, "print('the pager ran')"))
    path = write(tmp_path, 1, *talk(1))
    assert shown(capsys, path)[1][-2:] == ["> Hello", "Hi"]


# -- real files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", [[], ["--full"]])
def test_every_recording_can_be_shown(option: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    folder = recordings.need("transcripts for reading") / "transcripts"
    count = 0
    for path in sorted(folder.rglob("*.jsonl")):
        status, out, err = shown(capsys, path, *option)
        assert (status == 0 and len(out) > 1) or (status == 1 and "no message of a conversation" in err), path
        assert not any(ord(c) < 32 and c != "\t" for line in out for c in line), path
        count += status == 0
    assert count > 40
