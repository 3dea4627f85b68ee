"""Random conversations hold what they promise: without this, property tests over them could say nothing."""

from __future__ import annotations

from typing import Any

import conversations as conv
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from request_rules import check_messages

from turnstream.messages import AssistantMessage, SystemMessage, UserMessage

seen: set[str] = set()

EXPECTED_WORDS = """
item classes:
    UserMessage AssistantMessage SystemMessage AttachmentMessage ProgressMessage Tombstone ResponseFailed StreamNote
    RequestStart Resync ToolUseSummary OpaqueRecord Ping ContentBlockStop
block types:
    text thinking redacted_thinking tool_use tool_result server_tool_use web_search_tool_result mcp_tool_use image
    document compaction video tool_reference
states of a message:
    aborted unapplied invalid-input virtual meta summary api-error two-models boundary local_command string-content
    no-content whole split unfinished
rules that some break when sent as they are:
    rule:tool-use-unanswered rule:tool-result-orphan rule:tool-result-duplicate rule:tool-result-not-first
    rule:tool-use-id-duplicate rule:tool-id rule:tool-input rule:tool-use-name rule:tool-result-content
    rule:tool-result-error-content rule:tool-reference-unknown rule:text-empty rule:text-whitespace rule:lone-surrogate
    rule:content-empty rule:content-shape rule:block-shape rule:block-unknown rule:block-role
    rule:block-field-missing rule:block-field-unknown rule:block-field-type rule:cache-shape rule:cache-ttl-order
    rule:cache-too-many rule:cache-on-thinking rule:cache-on-empty-text rule:cache-nested rule:thinking-signature
    rule:thinking-content rule:thinking-last rule:thinking-while-off rule:thinking-not-first rule:thinking-missing
    rule:thinking-prefill rule:prefill-refused rule:prefill-unsupported rule:prefill-whitespace rule:source
    rule:media-type rule:media-type-mismatch rule:media-base64 rule:image-broken rule:image-pixels
    rule:image-pixels-many rule:pdf-broken rule:pdf-pages rule:server-tool-id rule:server-tool-unanswered
    rule:server-result-orphan rule:bedrock-first rule:bedrock-alternate rule:bedrock-tools rule:bedrock-id-length
    rule:messages-empty
"""
EXPECTED = [w for line in EXPECTED_WORDS.splitlines() if line.startswith(" ") for w in line.split()]


def _note(items: list[Any]) -> None:
    models: set[Any] = set()
    messages: dict[str, int] = {}
    for item in items:
        seen.add(type(item).__name__)
        if isinstance(item, SystemMessage):
            seen.add("boundary" if item.subtype == "compact_boundary" else str(item.subtype))
        if not isinstance(item, UserMessage | AssistantMessage):
            continue
        content = item.message.get("content")
        seen.add(
            "string-content" if isinstance(content, str) else "blocks" if isinstance(content, list) else "no-content"
        )
        for block in content if isinstance(content, list) else ():
            _note_block(block)
        if isinstance(item, AssistantMessage):
            models.add(item.message.get("model"))
            number = messages[str(item.message.get("id"))] = messages.get(str(item.message.get("id")), 0) + 1
            seen.update(
                name
                for name, there in {
                    "aborted": item.is_aborted_mid_stream,
                    "unapplied": item.unapplied_deltas,
                    "unfinished": item.unfinished_tool_inputs,
                    "invalid-input": item.invalid_tool_input,
                    "api-error": item.is_api_error_message,
                    "whole": isinstance(content, list) and len(content) > 1,
                    "split": number > 1 and item.index,
                    "two-models": len(models) > 1,
                }.items()
                if there
            )
        else:
            flags = {"virtual": item.is_virtual, "meta": item.is_meta, "summary": item.is_compact_summary}
            seen.update(name for name, there in flags.items() if there)


def _note_block(block: Any) -> None:
    if isinstance(block, dict):
        seen.add(str(block.get("type")))
        content = block.get("content")
        for nested in content if isinstance(content, list) else ():
            _note_block(nested)


@pytest.fixture(scope="module")
def drawn() -> set[str]:
    """What a few hundred conversations hold, and what the rules say when they are sent as they are."""

    @settings(max_examples=800, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(conv.conversations(), conv.options(), st.integers(0, 40))
    def draw(items: list[Any], options: dict[str, Any], cut: int) -> None:
        _note(items)
        spoken = [item.message for item in items if isinstance(item, UserMessage | AssistantMessage)]
        messages = [{key: each[key] for key in ("role", "content") if key in each} for each in spoken]
        for part in (messages, messages[:cut]):
            seen.update(f"rule:{found.rule}" for found in check_messages(part, **options))

    draw()
    return seen


@pytest.mark.parametrize("name", EXPECTED)
def test_occurs(drawn: set[str], name: str) -> None:
    assert name in drawn


@settings(max_examples=30, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(conv.conversations(media=False, moves=(conv.loop, conv.process)), st.booleans())
def test_orderly_turns_are_accepted(items: list[Any], thinking: bool) -> None:
    """The moves without damage give requests that the rules take, thinking on or (after an end) off."""
    spoken = [item.message for item in items if isinstance(item, UserMessage | AssistantMessage)]
    messages = [{"role": each["role"], "content": each["content"]} for each in spoken]
    if messages:
        messages.append({"role": "user", "content": "and now?"}) if messages[-1]["role"] == "assistant" else None
        found = {violation.rule for violation in check_messages(messages, thinking=thinking)}
        assert found <= (set() if thinking else {"thinking-while-off"})
