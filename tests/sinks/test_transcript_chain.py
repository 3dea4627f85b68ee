"""Who hangs on whom (WIRE.md §3, ``append`` and ``record``)."""

from __future__ import annotations

from pathlib import Path

import pytest
from transcripts import SESSION, Answer, maker, parents, records, uuids

from turnstream.messages import (
    ProgressMessage,
    StreamNote,
    Tombstone,
    ToolUseSummary,
    TranscriptError,
    UserMessage,
    replace,
)
from turnstream.sinks.transcript import TranscriptSink
from turnstream.sinks.transcript.chain import Chain
from turnstream.sinks.transcript.reading import resume
from turnstream.testing import virtual_time


@virtual_time
async def test_each_member_hangs_on_the_one_before(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, session_id=SESSION)
    user = make.user("hello")
    answer = Answer(make)
    notice = make.system("informational", "switched")
    memory = make.attachment({"type": "memory"})
    await sink.record([user])
    sink.on_next([answer.start(), *answer.text("one"), *answer.text("two"), *answer.end()])
    sink.append(notice)
    sink.append(memory)
    await sink.aclose()
    first, second = answer.messages
    assert parents(path) == {
        user.uuid: None,
        first.uuid: user.uuid,
        second.uuid: first.uuid,
        notice.uuid: second.uuid,
        memory.uuid: notice.uuid,
    }
    assert sink.last_uuid == memory.uuid


@virtual_time
async def test_nothing_but_result_messages_is_a_member(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user, after = make.user("a"), make.user("b")
    virtual = make.user("shown, never sent", is_virtual=True)
    said = make.assistant("shown, never sent", is_virtual=True)
    summary = ToolUseSummary(summary="s", uuid=make.ids(), timestamp=make.timestamp())
    between = [
        virtual,
        said,
        make.progress("toolu_1", None, {"type": "bash_progress"}),
        StreamNote(kind="x", message="y"),
        summary,
    ]
    sink.on_next([user, *between])
    for item in between:
        sink.append(item)
    assert await sink.record([*between, after]) == after.uuid
    await sink.aclose()
    assert parents(path) == {user.uuid: None, after.uuid: user.uuid}
    assert len(records(path)) == 2


@virtual_time
async def test_a_tool_result_hangs_on_the_message_that_asked(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make)
    sink.on_next([make.user("go"), answer.start(), *answer.tool("t1"), *answer.tool("t2"), *answer.end()])
    first, second = answer.messages
    result_2 = make.tool_result("t2", "two", source=second)
    result_1 = make.tool_result("t1", "one", source=first)
    unknown = make.tool_result("t3", "three", source=Answer(make).message({"type": "text", "text": "never written"}))
    await sink.record([result_2, result_1, unknown])
    await sink.aclose()
    found = parents(path)
    assert found[result_2.uuid] == second.uuid
    assert found[result_1.uuid] == first.uuid
    assert found[unknown.uuid] == result_1.uuid, "a source that isn't in the file is no parent"


@virtual_time
async def test_a_result_may_come_while_the_answer_goes_on(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    answer = Answer(make)
    sink.on_next([answer.start(), *answer.tool("t1")])
    result = make.tool_result("t1", "one", source=answer.messages[0])
    sink.on_next([result])
    sink.on_next([*answer.text("more"), *answer.end()])
    await sink.aclose()
    first, second = answer.messages
    assert parents(path) == {first.uuid: None, result.uuid: first.uuid, second.uuid: result.uuid}


@virtual_time
async def test_record_writes_only_what_is_new_and_says_the_last(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    talk = [make.user("1"), make.assistant("2"), make.user("3")]
    assert await sink.record([]) is None
    assert await sink.record(talk[:1]) == talk[0].uuid
    assert await sink.record(talk[:2]) == talk[1].uuid
    assert await sink.record(talk) == talk[2].uuid
    assert await sink.record(talk) == talk[2].uuid
    assert await sink.record([]) == talk[2].uuid
    assert uuids(path) == [message.uuid for message in talk]
    assert sink.statistics()["duplicates"] == 1 + 2 + 3
    await sink.aclose()


@virtual_time
async def test_held_messages_move_the_pointer_only_as_a_prefix(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    old = [make.user("1"), make.assistant("2"), make.user("3"), make.assistant("4")]
    await sink.record(old)
    boundary = make.system("compact_boundary", "Conversation compacted")
    summary = make.compact_summary("what was said")
    after = make.user("next")
    # After compaction: boundary and summary come first, then the kept tail, which is in the file.
    assert await sink.record([boundary, summary, old[2], old[3]]) == summary.uuid
    assert await sink.record([], parent=boundary.uuid) == boundary.uuid
    last = await sink.record([after])
    await sink.aclose()
    found = parents(path)
    assert found[summary.uuid] == boundary.uuid
    assert found[after.uuid] == summary.uuid
    assert last == after.uuid


@virtual_time
async def test_fault_38_a_result_put_between_held_messages_doesnt_cut_off_what_is_behind_it(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    call, answer = Answer(make, "msg_1"), Answer(make, "msg_2")
    ask, go_on = make.user("read it"), make.user("and now?")
    await sink.record([ask])
    sink.on_next([call.start(), *call.tool("t1"), *call.end(), answer.start(), *answer.text("done"), *answer.end()])
    await sink.record([go_on])
    await sink.aclose()
    # The call's result was never written: resume makes it, and whoever goes on records the whole list.
    messages = resume(path).messages
    made = messages[2]
    assert [m.uuid for m in messages] == [
        ask.uuid,
        call.messages[0].uuid,
        made.uuid,
        answer.messages[0].uuid,
        go_on.uuid,
    ]
    sink = TranscriptSink(path, append=True)
    assert await sink.record(messages) == go_on.uuid
    sink.append(more := make.user("more"))
    assert await sink.record([*messages, more, last := make.user("last")]) == last.uuid
    await sink.aclose()
    found = parents(path)
    assert found[made.uuid] == call.messages[0].uuid
    assert (found[more.uuid], found[last.uuid]) == (go_on.uuid, more.uuid)
    assert [m.uuid for m in resume(path).messages] == [*(m.uuid for m in messages), more.uuid, last.uuid]


@virtual_time
async def test_a_prefix_that_ends_early_makes_a_fork(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user, answer, edited, more = make.user("1"), make.assistant("2"), make.user("2, again"), make.user("3")
    await sink.record([user, answer])
    assert await sink.record([user]) == user.uuid
    sink.append(more)
    await sink.record([user, edited])
    await sink.aclose()
    found = parents(path)
    assert found[more.uuid] == answer.uuid, "held messages alone don't move what append follows"
    assert found[edited.uuid] == user.uuid


@virtual_time
async def test_parent_must_be_in_the_file_or_the_queue(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    first, second, branch, lost = make.user("1"), make.user("2"), make.user("b"), make.user("c")
    answer = Answer(make)
    sink.on_next([first, second, answer.start(), *answer.text("waits")])
    with pytest.raises(TranscriptError, match="neither in the transcript nor in its queue"):
        await sink.record([lost], parent="deadbeef-0000-4000-8000-000000000000")
    assert await sink.record([branch], parent=first.uuid) == branch.uuid
    assert await sink.record([], parent=second.uuid) == second.uuid
    await sink.aclose()
    assert parents(path)[branch.uuid] == first.uuid
    assert lost.uuid not in uuids(path)


@virtual_time
async def test_compact_boundary_is_a_root_with_a_logical_parent(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user = make.user("1")
    boundary = make.system("compact_boundary", "Conversation compacted", compactMetadata={"trigger": "manual"})
    own = make.system("compact_boundary", "Conversation compacted", logicalParentUuid=user.uuid)
    micro = make.system("microcompact_boundary", "Context microcompacted")
    await sink.record([user, boundary, micro, own])
    await sink.aclose()
    _, line, small, second = records(path)
    assert (line["parentUuid"], line["logicalParentUuid"]) == (None, user.uuid)
    assert (small["parentUuid"], "logicalParentUuid" in small) == (boundary.uuid, False)
    assert (second["parentUuid"], second["logicalParentUuid"]) == (None, user.uuid)


@virtual_time
async def test_a_boundary_at_the_very_start_has_no_logical_parent(tmp_path: Path) -> None:
    make = maker()
    sink = TranscriptSink(tmp_path / "s.jsonl")
    await sink.record([make.system("compact_boundary")])
    await sink.aclose()
    (line,) = records(tmp_path / "s.jsonl")
    assert line["parentUuid"] is None
    assert "logicalParentUuid" not in line


@virtual_time
async def test_tombstoned_while_queued_is_never_written_nor_a_parent(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path)
    user = make.user("go")
    lost, kept = Answer(make, "msg_lost"), Answer(make, "msg_kept")
    sink.on_next([user, lost.start(), *lost.text("half"), *lost.text("an answer")])
    child = make.user("typed while it streamed")
    sink.append(child)
    sink.on_next([*lost.tombstones(), kept.start(), *kept.text("whole"), *kept.end()])
    sink.on_next(lost.messages)  # retracted stays retracted
    await sink.aclose()
    assert parents(path) == {user.uuid: None, child.uuid: user.uuid, kept.messages[0].uuid: child.uuid}
    assert sink.statistics()["tombstones_queued"] == 2


@virtual_time
async def test_with_an_audit_trail_a_tombstone_is_a_record_and_the_pointer_goes_back(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, session_id=SESSION, tombstones="append")
    user, bad, after = make.user("1"), make.assistant("wrong"), make.user("2")
    await sink.record([user, bad])
    sink.append(Tombstone(message=bad))
    sink.append(Tombstone(message=bad))
    sink.append(Tombstone(message={"uuid": "never seen"}))
    await sink.record([after])
    await sink.aclose()
    assert records(path)[2] == {"type": "tombstone", "targetUuid": bad.uuid, "sessionId": SESSION}
    assert parents(path)[after.uuid] == user.uuid
    assert len(records(path)) == 4

    again = TranscriptSink(path, append=True)
    assert again.last_uuid == after.uuid
    assert await again.record([bad]) == after.uuid, "a tombstoned record isn't written again"
    await again.aclose()
    assert len(records(path)) == 4


@virtual_time
async def test_messages_without_an_id_get_one(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, clock=lambda: 1_750_000_000.5)
    bare = UserMessage(message={"role": "user", "content": "no id"}, uuid="", timestamp="")
    next_ = make.user("next")
    await sink.record([bare, next_])
    await sink.aclose()
    first, second = records(path)
    assert len(first["uuid"]) == 36
    assert second["parentUuid"] == first["uuid"]
    assert first["timestamp"] == "2025-06-15T15:06:40.500Z"
    assert bare.uuid == "", "the message itself isn't changed"


@virtual_time
async def test_persist_false_holds_the_messages_in_memory(tmp_path: Path) -> None:
    make = maker()
    sink = TranscriptSink(tmp_path / "sub" / "s.jsonl", persist=False, title="t")
    user, answer = make.user("1"), Answer(make)
    bad = make.assistant("x")
    assert await sink.record([user, bad]) == bad.uuid
    sink.on_next([Tombstone(message=bad), answer.start(), *answer.text("a"), *answer.end()])
    assert await sink.record([user]) == user.uuid
    await sink.drain()
    assert not sink.full()
    await sink.aclose()
    assert sink.messages == [user, *answer.messages]
    assert list(tmp_path.iterdir()) == []


@virtual_time
async def test_redact_changes_or_drops_lines_and_a_broken_one_never_lets_a_line_through(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"

    def redact(message: object) -> object:
        assert isinstance(message, UserMessage)
        text = message.message["content"]
        if text == "drop":
            return None
        if text == "crash":
            raise KeyError("oops")
        if text == "nonsense":
            return ProgressMessage(data=None, uuid="p", timestamp="")
        return replace(message, message={"role": "user", "content": text.replace("s3cret", "***")})

    sink = TranscriptSink(path, redact=redact)  # type: ignore[arg-type]
    talk = [make.user(text) for text in ("a s3cret", "drop", "crash", "nonsense", "end")]
    sink.on_next(talk)
    with pytest.raises(TranscriptError, match=r"redact failed: KeyError.*and 1 more"):
        await sink.drain()
    await sink.drain()
    await sink.aclose()
    assert [r["message"]["content"] for r in records(path)] == ["a ***", "end"]
    assert parents(path)[talk[4].uuid] == talk[0].uuid
    assert talk[0].message["content"] == "a s3cret"
    statistics = sink.statistics()
    assert (statistics["redacted_messages"], statistics["redact_errors"]) == (1, 2)


@virtual_time
async def test_a_title_without_a_conversation_is_never_written(tmp_path: Path) -> None:
    make = maker()
    path = tmp_path / "s.jsonl"
    sink = TranscriptSink(path, title="t", redact=lambda m: None if m.message["content"] == "drop" else m)  # type: ignore[union-attr]
    await sink.record([make.user("drop")])
    await sink.drain()
    assert not path.exists()
    await sink.record([make.user("keep")])
    await sink.aclose()
    assert [r["type"] for r in records(path)] == ["custom-title", "user"]


def test_chain_goes_back_over_any_number_of_removed_members() -> None:
    chain = Chain()
    previous = None
    for number in range(10_000):
        chain.add(f"u{number}", previous)
        previous = chain.pointer = f"u{number}"
    for number in range(9_999, 0, -1):
        assert chain.remove(f"u{number}")
    assert chain.pointer == "u0"
    assert not chain.remove("u5")
    assert chain.seen("u5")
    assert "u5" not in chain
    assert chain.remove("u0")
    assert chain.pointer is None
    assert chain.resolve("never seen") is None


def test_chain_survives_a_loop_in_a_foreign_file() -> None:
    chain = Chain()
    chain.add("a", "b")
    chain.add("b", "a")
    chain.remove("a")
    chain.remove("b")
    assert chain.resolve("a") is None


@virtual_time
async def test_fault_59_messages_of_another_session_that_the_file_holds_are_no_strangers(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    make = maker()
    sink = TranscriptSink(path, session_id=SESSION)
    await sink.record([make.user("1"), make.assistant("2")])
    await sink.aclose()
    other = "0b6b3f2e-1d58-4c3e-9f7e-5a3c1f0d9e77"
    first, second = uuids(path)
    # Another program went on with it under an id of its own.
    line = path.read_bytes().splitlines()[-1].replace(SESSION.encode(), other.encode())
    line = line.replace(second.encode(), b"gone-on-with").replace(first.encode(), second.encode())
    path.write_bytes(path.read_bytes() + line + b"\n")
    messages = resume(path).messages
    assert len(messages) == 3
    sink = TranscriptSink(path, append=True)
    assert sink.session_id == other
    sink.append(messages[0])
    sink.on_next(messages[:2])
    question = make.user("3")
    assert await sink.record([*messages, question]) == question.uuid
    stranger = replace(messages[0], uuid="not-held")
    with pytest.raises(TranscriptError, match=SESSION):
        await sink.record([*messages, stranger])
    await sink.aclose()
    assert parents(path)[question.uuid] == "gone-on-with"
    assert len(records(path)) == 4
