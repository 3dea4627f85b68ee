"""Hypothesis strategies for conversations: lists of message items as a session leaves them, whole and broken.

``conversations()`` draws a list of *moves* (a human speaks, the model answers, tools report, something is
inserted, cut or taken back …); each appends items. Nothing is checked or repaired, so that every kind of damage
of FAULTS.md groups D and E meets every other. ``options()`` draws what a request would say of itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import conversation_blocks as cb
import msgspec
from hypothesis import strategies as st

from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    ContentBlockStop,
    MessageFactory,
    OpaqueRecord,
    Ping,
    ProgressMessage,
    RequestStart,
    ResponseFailed,
    Resync,
    StreamNote,
    SystemMessage,
    Tombstone,
    ToolUseSummary,
    UserMessage,
)
from turnstream.messages.texts import INTERRUPTED, NO_RESPONSE_REQUESTED, SYNTHETIC_MODEL

Draw = st.DrawFn
TIME = "2026-01-02T03:04:05.678Z"


class Session:
    """What the moves share: the items so far, ids that count up, calls waiting for results."""

    def __init__(self, draw: Draw, media: bool) -> None:
        self.draw = draw
        self.media = media
        self.items: list[Any] = []
        self.open: list[tuple[Any, AssistantMessage]] = []
        self.count = 0
        self.make = MessageFactory(ids=self.uuid, clock=lambda: 0.0)

    def uuid(self, *scope: object) -> str:
        self.count += 1
        return f"00000000-0000-4000-8000-{self.count:012d}"

    def one(self, *choices: Any) -> Any:
        return self.draw(st.sampled_from(choices))

    def user(self, content: Any, **fields: Any) -> UserMessage:
        message = UserMessage(message={"role": "user", "content": content}, uuid=self.uuid(), timestamp=TIME, **fields)
        self.items.append(message)
        return message

    def assistant(self, content: Any, message_id: str, model: Any, usage: dict[str, Any], **fields: Any) -> None:
        envelope = {"id": message_id, "type": "message", "role": "assistant", "model": model, "content": content}
        envelope |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
        message = AssistantMessage(message=envelope, uuid=self.uuid(), timestamp=TIME, **fields)
        self.items.append(message)
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and block.get("type") == "tool_use":
                self.open.append((block.get("id"), message))


def human(s: Session) -> None:
    """A user's message: a string or blocks, plain or flagged."""
    kinds = [cb.marked(cb.text_blocks), cb.marked(cb.text_blocks), cb.misplaced, cb.not_blocks]
    if s.media:
        kinds.append(cb.marked(cb.media))
    content = s.draw(st.one_of(cb.texts, st.lists(st.one_of(kinds), max_size=3)))
    flags = s.one({}, {}, {}, {"is_meta": True}, {"is_virtual": True}, {"is_visible_in_transcript_only": True})
    s.user(content, **flags)


def cached(s: Session) -> None:
    """Cache marks: many, of both ages in any order, on empty text, of no known shape."""
    blocks = [{**s.draw(cb.text_blocks), "cache_control": s.draw(cb.marks)} for _ in range(s.one(1, 2, 3, 5))]
    s.user(blocks)


def shown(s: Session) -> None:
    """A call whose result is pictures or papers, or these from the user."""
    if s.media:
        blocks = [s.draw(cb.images), s.draw(cb.documents)][: s.one(1, 2, 2)]
        use_id = f"toolu_show{s.count}"
        if s.one(True, False):
            s.user(blocks)
        else:
            call = {"type": "tool_use", "id": use_id, "name": "Read", "input": {}}
            s.assistant([call], f"msg_show{s.count}", cb.MODEL, {}, index=0)
            s.open.pop()
            s.user([{"type": "tool_result", "tool_use_id": use_id, "content": blocks}])


def many_images(s: Session) -> None:
    """More images than the many-image limit allows at full size."""
    if s.media:
        blocks = [cb.image()] * s.one(19, 20, 21) + [s.draw(cb.images)]
        s.user(blocks if s.one(True, False) else [{"type": "tool_result", "tool_use_id": "toolu_1", "content": blocks}])


def answer(s: Session) -> None:
    """An answer of one model: one message a block (with its index) or all in one; calls may be answered between."""
    blocks: list[Any] = []
    for kind in s.draw(st.lists(st.sampled_from(_ANSWER_KINDS), min_size=1, max_size=5)):
        drawn = s.draw(_ANSWER_BLOCKS[kind])
        blocks.extend(drawn if isinstance(drawn, list) else [drawn])
    message_id, usage = f"msg_{s.one(0, s.count)}", {"input_tokens": 1, "output_tokens": 1}
    model = s.one(cb.MODEL, cb.MODEL, cb.MODEL, cb.OTHER_MODEL, cb.NEW_MODEL)
    way = s.one("split", "split", "whole", "between", "shuffled")
    if way == "whole":
        s.assistant(blocks, message_id, model, usage)
        return
    order = s.draw(st.permutations(range(len(blocks)))) if way == "shuffled" else range(len(blocks))
    for index in order:
        s.assistant([blocks[index]], message_id, model, usage, index=index)
        if way == "between" and s.open and s.one(True, False):
            use_id, source = s.open.pop()
            s.user([s.draw(cb.results(use_id))], source_tool_assistant_uuid=source.uuid)


_ANSWER_BLOCKS: dict[str, st.SearchStrategy[Any]] = {
    "text": cb.marked(cb.text_blocks),
    "cited": cb.cited_blocks,
    "thinking": cb.marked(cb.thinkings),
    "redacted": cb.redacted,
    "tool": cb.marked(cb.tool_uses()),
    "server": cb.server_blocks,
    "unknown": cb.unknown_blocks,
    "misplaced": cb.misplaced,
}
_ANSWER_KINDS = [
    "text",
    "thinking",
    "tool",
    "tool",
    "tool",
    "text",
    "redacted",
    "server",
    "unknown",
    "cited",
    "misplaced",
]


def loop(s: Session) -> None:
    """A turn as it should be: words, thinking and a call, its result."""
    use_id, message_id, usage = f"toolu_ok{s.count}", f"msg_ok{s.count}", {"output_tokens": 1}
    s.user("do it")
    s.assistant([{"type": "thinking", "thinking": "", "signature": "c2ln"}], message_id, cb.MODEL, usage, index=0)
    call = {"type": "tool_use", "id": use_id, "name": "Read", "input": {}}
    s.assistant([call], message_id, cb.MODEL, usage, index=1)
    s.open.pop()
    s.user([{"type": "tool_result", "tool_use_id": use_id, "content": "ok"}], tool_use_result={"raw": [1]})
    if s.one(True, False):
        s.assistant([{"type": "text", "text": "Done."}], f"msg_end{s.count}", cb.MODEL, usage, index=0)


def odd_loop(s: Session) -> None:
    """A turn in order whose call and result are of any kind."""
    call = s.draw(cb.tool_uses())
    s.assistant([call], f"msg_odd{s.count}", s.one(cb.MODEL, cb.OTHER_MODEL), {}, index=0)
    s.open.pop()
    result = s.draw(cb.results(call.get("id")))
    s.user([result] * s.one(1, 1, 1, 2))


def report(s: Session) -> None:
    """Results of open calls: all, some, in reverse, twice, one message each or together, words around them."""
    waiting = list(s.open)
    way = s.one("all", "all", "first", "reversed", "twice")
    waiting = {"first": waiting[:1], "reversed": waiting[::-1], "twice": waiting[:1] * 2}.get(way, waiting)
    if way != "first":
        s.open.clear()
    blocks = [s.draw(cb.results(use_id)) for use_id, _ in waiting[:4]]
    if s.one(True, False):
        for block, (_, source) in zip(blocks, waiting, strict=False):
            s.user([block], tool_use_result="its own", source_tool_assistant_uuid=source.uuid)
    elif blocks:
        words = s.draw(cb.text_blocks)
        s.user({"before": [words, *blocks], "after": [*blocks, words], "no": blocks}[s.one("no", "before", "after")])


def orphan(s: Session) -> None:
    """A result nobody asked for now."""
    s.user([s.draw(cb.results(s.draw(cb.odd_ids)))])


def aborted(s: Session) -> None:
    """An answer cut in the middle: partial text, unsigned thinking, a call whose input never ended."""
    content = s.one(
        [{"type": "text", "text": "half a sen"}],
        [{"type": "text", "text": "\n\n"}],
        [{"type": "thinking", "thinking": "I was"}, {"type": "text", "text": "x"}],
        [{"type": "thinking", "thinking": "I was", "signature": ""}],
        [],
    )
    unfinished = [{"index": 1, "id": "toolu_cut", "name": "Write", "raw": '{"file_pa'}]
    message_id = f"msg_cut{s.count}"
    s.assistant(
        content, message_id, cb.MODEL, {}, is_aborted_mid_stream=True, unfinished_tool_inputs=s.one(None, unfinished)
    )
    if s.one(True, False):
        error = {"type": "incomplete", "message": "", "status": None, "requestId": None, "retryable": True}
        s.items.append(ResponseFailed(error=error, kept=content))
    if s.one(True, False):
        s.items.append(s.make.interruption(tool_use=s.one(True, False)))


def unapplied(s: Session) -> None:
    """A block that kept deltas it couldn't take, or whose input was no JSON."""
    deltas = [{"type": "novel_delta", "data": "x"}]
    s.assistant([{"type": "text", "text": "y"}], f"msg_{s.count}", cb.MODEL, {}, index=0, unapplied_deltas=deltas)
    bad = {"type": "tool_use", "id": f"toolu_bad{s.count}", "name": "Bash", "input": '{"command": "ls'}
    s.assistant([bad], f"msg_{s.count}", cb.MODEL, {}, index=0, invalid_tool_input=True)


def stand_in(s: Session) -> None:
    """What never was speech: synthetic texts, API errors, answers without a model."""
    s.items.append(
        s.one(
            s.make.assistant(NO_RESPONSE_REQUESTED),
            s.make.assistant("some synthetic words"),
            s.make.api_error("API Error: 400 the image is too large", api_error="invalid_request"),
            s.make.user(INTERRUPTED),
            s.make.interruption(tool_use=True),
        )
    )
    if s.one(True, False):
        s.assistant([{"type": "text", "text": "no model"}], f"msg_{s.count}", s.one(None, SYNTHETIC_MODEL, ""), {})


def attachment(s: Session) -> None:
    """Context beside the conversation, of kinds that have a renderer and kinds that have none."""
    s.items.append(
        AttachmentMessage(
            attachment=s.one(
                {"type": "queued_command", "prompt": "also do this"},
                {"type": "queued_command", "prompt": [{"type": "text", "text": ""}, cb.image()]},
                {"type": "skill_listing", "content": "- a skill"},
                {"type": "hook_success", "hookName": "H", "hookEvent": "Stop", "content": "", "stdout": ""},
                {"type": "hook_additional_context", "content": ["lone \ud83d"]},
                {"type": "nested_memory", "path": "/m", "content": {"path": "/m", "type": "User", "content": "rule"}},
                {"type": "edited_text_file", "filename": "/f", "snippet": "1\tx"},
                {"type": "task_reminder", "content": [], "itemCount": 0},
                {"type": "from_next_year", "content": 7},
                {},
            ),
            uuid=s.uuid(),
            timestamp=TIME,
        )
    )


def notice(s: Session) -> None:
    """System messages; of these only local_command goes to the model."""
    subtype, content = s.one(
        ("local_command", "<local-command-stdout>Rebuilt</local-command-stdout>"),
        ("local_command", "<command-name>/cost</command-name>"),
        ("local_command", "<local-command-stderr></local-command-stderr>"),
        ("local_command", ""),
        ("local_command", "\udc8f"),
        ("informational", "switched model"),
        ("api_error", msgspec.UNSET),
        ("turn_duration", msgspec.UNSET),
        ("from_next_year", {"odd": True}),
        (None, None),
    )
    s.items.append(SystemMessage(subtype=subtype, content=content, uuid=s.uuid(), timestamp=TIME))


def compaction(s: Session) -> None:
    """A boundary, with its summary or without; or a microcompact one."""
    subtype = s.one("compact_boundary", "compact_boundary", "microcompact_boundary")
    fields = s.one({}, {"compactMetadata": {"trigger": "auto", "preTokens": 9}}, {"logicalParentUuid": "gone"})
    s.items.append(
        SystemMessage(subtype=subtype, content="Conversation compacted", uuid=s.uuid(), timestamp=TIME, fields=fields)
    )
    if s.one(True, False):
        s.items.append(s.make.compact_summary("What happened so far."))


def taken_back(s: Session) -> None:
    """A tombstone for an earlier message (still in the list, or only named), or one for nobody."""
    spoken = [item for item in s.items if isinstance(item, AssistantMessage)]
    target = s.draw(st.sampled_from(spoken)) if spoken else None
    s.items.append(Tombstone(message=s.one(target, {"uuid": target.uuid}) if target else {"uuid": "nobody"}))


def again(s: Session) -> None:
    """The same item a second time, as after a resume."""
    if s.items:
        s.items.append(s.draw(st.sampled_from(s.items)))


def process(s: Session) -> None:
    """What drives a display and is gone."""
    s.items.append(
        s.one(
            ProgressMessage(data={"type": "bash"}, uuid=s.uuid(), timestamp=TIME, tool_use_id="toolu_1"),
            RequestStart(),
            StreamNote(kind="note", message="x"),
            Resync(),
            ToolUseSummary(summary="Read 2 files", uuid=s.uuid(), timestamp=TIME),
            OpaqueRecord(type="from_next_year", data={"type": "from_next_year"}),
            Ping(),
            ContentBlockStop(0),
        )
    )


def misshapen(s: Session) -> None:
    """Messages whose payload isn't what it should be."""
    content = s.one(
        None, [], "", 5, {"type": "text", "text": "x"}, ["bare string", None, {"type": "text", "text": "y"}]
    )
    if s.one(True, False):
        s.user(content)
    else:
        s.assistant(content, s.one("msg_0", f"msg_{s.count}"), cb.MODEL, {})
    if s.one(False, False, False, True):
        s.items.append(UserMessage(message=s.one({}, {"role": "user"}), uuid=s.uuid(), timestamp=TIME))
    if s.one(False, False, False, True):
        s.items.append(AssistantMessage(message=s.one({}, {"model": cb.MODEL}), uuid=s.uuid(), timestamp=TIME))


Move = Callable[[Session], None]
MOVES: tuple[Move, ...] = (
    *(human, answer, report, loop, answer, report, human),
    *(orphan, attachment, notice, process, stand_in, aborted, unapplied),
    *(compaction, taken_back, again, misshapen, many_images, cached, shown, shown, odd_loop, odd_loop),
)


@st.composite
def conversations(draw: Draw, *, max_moves: int = 12, media: bool = True, moves: tuple[Move, ...] = MOVES) -> list[Any]:
    """Any conversation.

    Args:
        draw: Hypothesis's.
        max_moves: each is one to a dozen items.
        media: whether images and documents occur (they slow shrinking).
        moves: what may happen; leave some out to look at one kind of damage.
    """
    session = Session(draw, media)
    for move in draw(st.lists(st.sampled_from(moves), min_size=min(3, max_moves), max_size=max_moves)):
        move(session)
    return session.items


def toolsets() -> st.SearchStrategy[list[dict[str, Any]] | None]:
    """Declared tools: unknown, none, some of those that calls name."""
    tool = st.sampled_from(cb.TOOL_NAMES[:3]).map(lambda name: {"name": name, "input_schema": {"type": "object"}})
    return st.one_of(st.none(), st.lists(tool, max_size=3, unique_by=lambda each: str(each["name"])))


@st.composite
def options(draw: Draw) -> dict[str, Any]:
    """Keyword arguments that ``normalize_for_api`` and ``request_rules.check_messages`` both take."""
    return {
        "model": draw(st.sampled_from([None, cb.MODEL, cb.MODEL, cb.OTHER_MODEL, cb.NEW_MODEL])),
        "dialect": draw(st.sampled_from(["anthropic", "anthropic", "bedrock"])),
        "tools": draw(toolsets()),
        "thinking": draw(st.booleans()),
        "prefill": draw(st.sampled_from(["refuse", "refuse", "allow"])),
        "reserved_cache_marks": draw(st.sampled_from([0, 0, 1, 2, 4])),
    }
