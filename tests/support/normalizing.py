"""Messages for tests of normalization, made by hand: short words for what a conversation is made of."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from hypothesis import strategies as st

from turnstream.messages import (
    AssistantMessage,
    AttachmentMessage,
    ProgressMessage,
    SystemMessage,
    Tombstone,
    UserMessage,
)
from turnstream.operators import Operator, run_batches, run_stages
from turnstream.operators.normalize import convert_context, filter_for_api, merge_turns, reorder_attachments

TIME = "2026-01-02T03:04:05.678Z"
MODEL = "claude-sonnet-4-5"


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "Look", "input": given}


def thought(words: str, signature: str = "c2ln") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


def answered(name: str, words: Any = "found") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": words}


def user(uuid: str, content: Any, **fields: Any) -> UserMessage:
    return UserMessage(message={"role": "user", "content": content}, uuid=uuid, timestamp=f"time of {uuid}", **fields)


def result(uuid: str, *names: str, **fields: Any) -> UserMessage:
    return user(uuid, [answered(name) for name in names], **fields)


def said(uuid: str, api_id: str | None, *blocks: Any, model: str | None = MODEL, **fields: Any) -> AssistantMessage:
    message: dict[str, Any] = {"type": "message", "role": "assistant", "content": list(blocks), "usage": {}}
    if api_id is not None:
        message["id"] = api_id
    if model is not None:
        message["model"] = model
    return AssistantMessage(message=message, uuid=uuid, timestamp=f"time of {uuid}", **fields)


def attached(uuid: str, kind: str = "date_change", **fields: Any) -> AttachmentMessage:
    if kind == "date_change":
        fields.setdefault("newDate", uuid)
    return AttachmentMessage(attachment={"type": kind, **fields}, uuid=uuid, timestamp=f"time of {uuid}")


def notice(uuid: str, subtype: str = "local_command", content: Any = "<local-command-stdout>ok</local-command-stdout>"):
    return SystemMessage(subtype=subtype, content=content, uuid=uuid, timestamp=f"time of {uuid}")


def progress(uuid: str) -> ProgressMessage:
    return ProgressMessage(data={"type": "bash_progress"}, uuid=uuid, timestamp=TIME, tool_use_id="t")


def stages(explain: Any = None) -> Operator[Any, Any]:
    """Stages 1 to 4."""
    return (
        filter_for_api(explain) | reorder_attachments(explain) | convert_context(explain=explain) | merge_turns(explain)
    )


def normalized(messages: Iterable[Any], explain: Any = None) -> list[Any]:
    return run_stages(messages, stages(explain))


def streamed(messages: Sequence[Any], sizes: Iterable[int], operator: Operator[Any, Any]) -> list[Any]:
    """The same in batches of ``sizes``, the rest in one."""
    batches: list[list[Any]] = []
    at = 0
    for size in sizes:
        batches.append(list(messages[at : at + size]))
        at += size
    batches.append(list(messages[at:]))
    return [item for batch in run_batches(batches, operator) for item in batch]


def uuids(messages: Iterable[Any]) -> list[str]:
    return [message.uuid for message in messages]


def contents(messages: Iterable[Any]) -> list[Any]:
    return [message.message["content"] for message in messages]


def frozen(messages: Iterable[Any]) -> list[Any]:
    """A deep copy to compare with later."""
    return copy.deepcopy(list(messages))


# -- any conversation -------------------------------------------------------------------------------------

_BLOCKS = st.one_of(
    st.sampled_from(["a", "b", "", " \n"]).map(text),
    st.sampled_from(["t1", "t2", "t3"]).map(call),
    st.sampled_from(["hm", "so"]).map(thought),
    st.sampled_from(["t1", "t2", "t3", "t9"]).map(answered),
    st.just(text("[Request interrupted by user]")),
    st.just({"type": "odd", "list": [1]}),
    st.just({"no": "type"}),
    st.just({"type": "tool_use", "id": ["unhashable"]}),
    st.just({"type": "tool_result", "tool_use_id": {"un": "hashable"}}),
)
_ODD_ITEMS = st.sampled_from([None, 5, "words", "", "No response requested.", ["list"]])
_CONTENT = st.one_of(
    st.sampled_from(["words", "", "[Request interrupted by user]", None, 7]),
    st.lists(_BLOCKS, max_size=3),
    st.lists(st.one_of(_BLOCKS, _ODD_ITEMS), max_size=3),
)
_FLAG = st.sampled_from([None, None, None, True, False])
_RARE = st.sampled_from([None, None, None, None, None, True])


def _user(content: Any, meta: Any, virtual: Any, output: Any) -> UserMessage:
    return user("", content, is_meta=meta, is_virtual=virtual, tool_use_result=output)


def _said(api_id: Any, blocks: Any, index: Any, request: Any, flags: tuple[Any, Any, Any], model: Any) -> Any:
    message = said(
        "",
        api_id,
        model=model,
        index=index,
        request_id=request,
        is_virtual=flags[0],
        is_aborted_mid_stream=flags[1],
        unapplied_deltas=[{"type": "text_delta"}] if flags[2] else None,
    )
    message.message["content"] = blocks
    return message


_ITEMS = st.one_of(
    st.builds(_user, _CONTENT, _FLAG, _RARE, st.sampled_from([msgspec.UNSET, "output"])),
    st.builds(
        _said,
        st.sampled_from(["m1", "m1", "m2", "m3", None]),
        _CONTENT,
        st.sampled_from([None, None, 0, 1, 2]),
        st.sampled_from([None, None, "r1", "r2"]),
        st.tuples(_RARE, _RARE, _RARE),
        st.sampled_from([MODEL, MODEL, MODEL, MODEL, "<synthetic>", None]),
    ),
    st.sampled_from(["date_change", "command_permissions", "unheard_of"]).map(lambda kind: attached("", kind)),
    st.sampled_from(["later", "", "[Request interrupted by user]"]).map(
        lambda prompt: attached("", "queued_command", prompt=prompt)
    ),
    st.sampled_from(["local_command", "informational"]).map(lambda subtype: notice("", subtype)),
    st.just(0).map(lambda _: progress("")),
    st.integers(1, 4),  # a tombstone for the message so many before it
)


@st.composite
def conversations(draw: st.DrawFn, max_size: int = 14) -> list[Any]:
    """Anything at all, well formed or not; every message has a uuid of its own."""
    out: list[Any] = []
    for number, item in enumerate(draw(st.lists(_ITEMS, max_size=max_size))):
        if isinstance(item, int):
            targets = [m for m in out if isinstance(m, (UserMessage, AssistantMessage))]
            if targets:
                out.append(Tombstone(message=targets[-min(item, len(targets))]))
            continue
        out.append(msgspec.structs.replace(item, uuid=f"u{number}"))
    return out


SIZES = st.lists(st.integers(0, 4), max_size=12)
