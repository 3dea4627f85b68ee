"""The runner: nobody may leave something out, and the arithmetic is that of the docs."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from turnstream.bench import (
    FLOORS,
    OURS,
    WORKLOADS,
    Check,
    Contender,
    Found,
    Given,
    Growth,
    Row,
    Timed,
    check,
    finish,
    given,
    grow,
    make_workload,
    measure,
    node_peers,
    python_peers,
    render,
    run,
)
from turnstream.bench.bars import DOUBLING_LIMIT, FLOOR_LIMIT

TINY = 0.002


def right(seconds: Iterator[float], name: str) -> Contender:
    """Says the given times, and that it found everything."""
    return Contender(name, lambda _: Timed(next(seconds), Found()))


def test_the_floor_is_as_it_was_taken_over() -> None:
    import turnstream.bench.floor as module

    # Every ratio is against this file; change it and all of them are worth nothing.
    digest = hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()
    assert digest == "b964e83354268e1413604300157988e8a3db3f69a24283febbb75b0583c689f7"


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("size", [16_384, 0])
def test_all_of_ours_find_everything(name: str, size: int) -> None:
    workload = make_workload(name, scale=TINY)
    rows = measure(workload, size, [*FLOORS, *OURS], rounds=1)
    assert [row.contender for row in rows] == [c.name for c in (*FLOORS, *OURS)]
    assert {row.events for row in rows} == {len(workload.events)}
    assert {row.chunking for row in rows} == {"1 event" if size == 0 else "16 KiB"}
    assert rows[0].ratio == 1
    assert rows[-1].to_ours == 1


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_ours_report_isnt_unknown(name: str) -> None:
    workload = make_workload(name, scale=TINY)
    for contender in OURS:
        found = contender.found(finish(contender, contender.prepare(given(workload, 16_384))))
        assert found == Found(workload.text_characters, workload.blocks, workload.tool_characters, len(workload.events))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda w: Found(text_characters=w.text_characters - 1), "text characters"),
        (lambda w: Found(blocks=0), "found 0 blocks"),
        (lambda w: Found(tool_characters=w.tool_characters + 1), "tool characters"),
        (lambda w: Found(events=len(w.events) - 1), "events in workload C"),
    ],
)
def test_who_leaves_something_out_is_caught(wrong: Callable[[Any], Found], words: str) -> None:
    workload = make_workload("C", scale=TINY)
    with pytest.raises(RuntimeError, match=f"hasty found .*{words.removeprefix('found ')}"):
        measure(workload, 0, [Contender("hasty", lambda _: wrong(workload))], rounds=1)


def test_who_is_right_at_first_only_is_caught() -> None:
    workload = make_workload("C", scale=TINY)
    answers = iter([Found(), Found(blocks=1)])
    with pytest.raises(RuntimeError, match="lazy found 1 blocks"):
        measure(workload, 0, [Contender("lazy", lambda _: next(answers))], rounds=1)


def test_ratios_are_medians_of_the_rounds() -> None:
    workload = make_workload("C", scale=TINY)
    # The first of each is the warm-up.
    floor = right(iter([100.0, 1.0, 2.0, 4.0]), "floor")
    other = right(iter([0.0, 3.0, 2.0, 20.0]), "other")
    rows = measure(workload, 16_384, [other], rounds=3, floor=floor)
    assert [row.contender for row in rows] == ["floor", "other"]
    assert (rows[0].ratio, rows[0].ratio_min, rows[0].ratio_max) == (1, 1, 1)
    # 3/1, 2/2, 20/4
    assert (rows[1].ratio, rows[1].ratio_min, rows[1].ratio_max) == (3, 1, 5)
    assert rows[1].us_per_event == pytest.approx(3 / len(workload.events) * 1e6)
    assert rows[1].rounds == 3
    assert rows[1].to_ours is None


def test_each_round_begins_with_another() -> None:
    order: list[str] = []

    def noting(name: str) -> Contender:
        def go(_: Given) -> Found:
            order.append(name)
            return Found()

        return Contender(name, go)

    measure(make_workload("C", scale=TINY), 0, [noting("b"), noting("c")], rounds=2, floor=noting("a"))
    assert "".join(order) == "abcbcacab"


def test_only_c_has_a_fresh_chain_per_answer() -> None:
    for name in WORKLOADS:
        assert given(make_workload(name, scale=TINY), 0).fresh == (name == "C")
    what = given(make_workload("C", scale=TINY), 16_384)
    assert what.chunks == [chunk for answer in what.answers for chunk in answer]
    assert len(what.answers) == 10


def test_growth_is_the_ratio_to_the_half() -> None:
    workloads = [make_workload(f"B/{part}", scale=TINY) for part in (4, 2, 1)]
    times = iter([9.0, 9.0, 9.0, 1.0, 2.0, 8.0, 1.0, 3.0, 6.0, 2.0, 5.0, 5.0])
    (growth,) = grow(workloads, [right(times, "it")], rounds=3)
    assert growth.workloads == ["B/4", "B/2", "B/1"]
    assert growth.milliseconds == [1000, 3000, 6000]
    # medians of 2/1, 3/1, 5/2 and of 8/2, 6/3, 5/5
    assert growth.doublings == [2.5, 2]


def row(contender: str, ratio: float, *, workload: str = "A", chunking: str = "16 KiB", to_ours: float = 1.0) -> Row:
    return Row(
        workload=workload,
        chunking=chunking,
        contender=contender,
        events=10,
        us_per_event=1.0,
        ratio=ratio,
        ratio_min=ratio,
        ratio_max=ratio,
        to_ours=to_ours,
        rounds=5,
    )


def verdicts(*rows: Row, growth: tuple[Growth, ...] = ()) -> list[tuple[float, bool]]:
    return [(c.value, c.met) for c in check(rows, growth)]


def test_the_bars() -> None:
    ours = "bytes to three sinks"
    assert verdicts(row(ours, 1.1), row(ours, 1.2, workload="B")) == [(1.1, True), (1.2, False)]
    assert verdicts(row(ours, 2.8, chunking="1 event"), row(ours, 4.1, workload="C", chunking="1 event")) == [
        (2.8, True),
        (4.1, False),
    ]
    assert verdicts(row("three stages, counting sink", 0.91)) == [(0.91, False)]
    assert verdicts(row("bytes to three sinks", 9.0, workload="A/10")) == []


def test_the_floors_own_bar() -> None:
    assert FLOOR_LIMIT == 3.3
    name = "orjson alone (payloads cut before)"
    assert verdicts(row(name, 0.4)) == [(2.5, True)]
    assert verdicts(row(name, 0.25)) == [(4.0, False)]


def test_the_peers_bars_are_against_ours() -> None:
    assert verdicts(row("anthropic SDK, messages.stream()", 5, to_ours=80)) == [(80, True)]
    assert verdicts(row("anthropic SDK, raw events", 50, to_ours=11.9)) == [(11.9, False)]
    assert verdicts(row("Node: eventsource-parser + rxjs", 5, to_ours=0.9)) == [(0.9, False)]
    assert verdicts(row("anthropic SDK, raw events", 50, workload="B")) == []
    assert verdicts(row("anthropic SDK, messages.stream()", 50, workload="A/10")) == []


def test_the_bar_of_growth() -> None:
    assert DOUBLING_LIMIT == 2.3
    each = Growth(contender="bytes to three sinks", workloads=[], milliseconds=[], doublings=[1.9, 2.4])
    assert verdicts(growth=(each,)) == [(2.4, False)]


def test_a_whole_run_and_its_tables() -> None:
    told: list[str] = []
    report = run(("B", "C"), scale=TINY, rounds=1, tell=told.append)
    assert told == [
        "B, 16 KiB chunks …",
        "B, one event a chunk …",
        "B, growth …",
        "C, 16 KiB chunks …",
        "C, one event a chunk …",
    ]
    assert [g.workloads for g in report.growth] == [["B/8", "B/4", "B/2", "B"]] * 2
    text = render(report)
    assert "the bars are for the full size" in text
    for name in (*(c.name for c in FLOORS), *(c.name for c in OURS), "doublings", "the largest doubling"):
        assert name in text
    missed = Check(what="this", value=2.0, met=False, at_most=1.0)
    assert "NOT MET" in render(type(report)({**report.environment}, 1.0, report.rows, [], [missed]))


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"scale": 0.0}, {"names": ("X",)}])
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least one round|no workload"):
        run(**{"scale": TINY, **wrong})


# -- peers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["A", "B", "C"])
@pytest.mark.parametrize("size", [16_384, 0])
def test_python_peers_find_the_same(name: str, size: int) -> None:
    workload = make_workload(name, scale=TINY)
    peers = python_peers()
    rows = measure(workload, size, peers, rounds=1)
    assert [row.contender for row in rows[1:]] == [peer.name for peer in peers]
    assert len(peers) >= 1 + 2 * (find_spec("anthropic") is not None)


def test_missing_node_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    told: list[str] = []
    monkeypatch.delenv("TURNSTREAM_BENCH_NODE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with node_peers(told.append) as peers:
        assert peers == []
    node_like(tmp_path, "")
    with node_peers(told.append) as peers:
        assert peers == []
    monkeypatch.setenv("TURNSTREAM_BENCH_NODE", str(tmp_path))
    with node_peers(told.append) as peers:
        assert peers == []
    assert ["no node on PATH" in told[0], "isn't set" in told[1], "no node_modules" in told[2]] == [True] * 3


def node_like(folder: Path, program: str) -> None:
    """Something on PATH that speaks as our script under Node does."""
    file = folder / "node"
    file.write_text(f"#!{sys.executable}\n{program}")
    file.chmod(0o755)


SPEAKING = """
import json, sys
print(json.dumps({"node": "v0", "contenders": ["Node: it", "Node: anthropic SDK, messages.stream()"]}), flush=True)
runs = 0
for line in sys.stdin:
    order = json.loads(line)
    if "load" in order:
        head, data = open(order["load"], "rb").read().split(b"\\n", 1)
        lengths = json.loads(head)
        assert sum(map(sum, lengths)) == len(data)
        blocks = data.count(b"event: content_block_stop")
        print(json.dumps({"loaded": len(lengths)}), flush=True)
    elif order["run"] == "Node: it":
        runs += 1
        print(json.dumps({"seconds": runs, "found": {"blocks": blocks}}), flush=True)
    else:
        print(json.dumps({"error": "Error: boom"}), flush=True)
"""


def test_the_process_says_its_own_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node_like(tmp_path, SPEAKING)
    (tmp_path / "node_modules").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TURNSTREAM_BENCH_NODE", str(tmp_path))
    workload = make_workload("C", scale=TINY)
    with node_peers() as (peer, stream):
        assert (peer.slow, stream.slow) == (False, True)
        rows = measure(workload, 0, [peer], rounds=3)
        # Two to warm it, one uncounted; then 4, 5, 6 seconds.
        assert rows[1].us_per_event == pytest.approx(5 / len(workload.events) * 1e6)
        with pytest.raises(RuntimeError, match="node: Error: boom"):
            measure(workload, 0, [stream], rounds=1)


def test_a_process_that_dies_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    node_like(tmp_path, "raise SystemExit(7)")
    (tmp_path / "node_modules").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TURNSTREAM_BENCH_NODE", str(tmp_path))
    with pytest.raises(RuntimeError, match="node ended with status 7"), node_peers():
        pass


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on PATH")
def test_without_packages_node_has_no_peers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "node_modules").mkdir()
    monkeypatch.setenv("TURNSTREAM_BENCH_NODE", str(tmp_path))
    told: list[str] = []
    with node_peers(told.append) as peers:
        assert peers == []
    assert "has none of eventsource-parser" in told[0]


@pytest.mark.skipif(
    not os.environ.get("TURNSTREAM_BENCH_NODE") or shutil.which("node") is None,
    reason="TURNSTREAM_BENCH_NODE names no folder with packages",
)
@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_node_peers_find_the_same(name: str) -> None:
    with node_peers() as peers:
        rows = measure(make_workload(name, scale=TINY), 16_384, peers, rounds=1)
    assert len(rows) == 1 + len(peers)
