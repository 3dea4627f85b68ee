"""What a type checker knows of long pipes: pyright reads this file in `make lint`, pytest only runs it."""

from __future__ import annotations

from typing import assert_type

from turnstream import Operator, accumulate, coalesce, decode_sse, parse_events, run_stages, settle
from turnstream.messages import AssistantMessage, QueryItem, UserMessage
from turnstream.operators.normalize import convert_context, filter_for_api, merge_turns, reorder_attachments


def test_fault_114_a_pipe_of_ten_stages_keeps_its_types() -> None:
    """Rx's own ``pipe`` is typed to seven operators and ends in Any after that; ``|`` has no limit."""
    stream = decode_sse() | parse_events() | accumulate() | coalesce() | settle() | settle()
    assert_type(stream, Operator[bytes, QueryItem])
    ten = stream | filter_for_api() | reorder_attachments() | convert_context() | merge_turns()
    assert_type(ten, Operator[bytes, UserMessage | AssistantMessage])
    assert_type(run_stages([b""], ten), list[UserMessage | AssistantMessage])
    assert ten.name.count("|") == 9
