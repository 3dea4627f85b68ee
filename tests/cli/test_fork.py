"""``turnstream fork``, as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sessions import session_id, talk, write

from turnstream.cli import main


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path, 1, *talk(1))


def forked(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main(["fork", *map(str, arguments)])
    return status, *capsys.readouterr()


def test_prints_the_new_file(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = forked(capsys, "a0000000", "--at", "u-1", "--root", tmp_path)
    assert (status, err) == (0, "")
    new = Path(out.removesuffix("\n"))
    assert new.parent == path.parent
    assert [json.loads(line)["type"] for line in new.read_text().splitlines()] == ["user", "custom-title"]


def test_a_file_a_title_and_json(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = forked(capsys, path, "--at", "a-1", "--title", "Try", "--json")
    report = json.loads(out)
    new = Path(report["path"])
    assert status == 0
    assert report == {"session_id": new.stem, "path": str(new), "forked_from": str(path), "at": "a-1"}
    assert json.loads(new.read_text().splitlines()[-1])["customTitle"] == "Try"


def test_errors(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = forked(capsys, path, "--at", "nobody")
    assert (status, out) == (1, "")
    assert "the record nobody isn't in the file" in err
    status, out, err = forked(capsys, "ffff", "--at", "u-1", "--root", tmp_path)
    assert (status, out) == (2, "")
    assert "no session 'ffff'" in err
    status, out, err = forked(capsys, tmp_path / "x.jsonl", "--at", "u-1")
    assert (status, out) == (2, "")
    assert "there is no file" in err
    write(tmp_path, 2, *talk(2))
    status, out, err = forked(capsys, "a000", "--at", "u-1", "--root", tmp_path)
    assert (status, out) == (2, "")
    assert "2 sessions" in err
    with pytest.raises(SystemExit) as ended:
        main(["fork", session_id(1)])
    assert ended.value.code == 2
