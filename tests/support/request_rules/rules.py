"""Every rule by name, with its grounds.

``documented``: an official page or the API's own error text; ``reported``: third parties say so;
``inferred``: from the API reference, SDK types or widely quoted texts, and no recorded 200 breaks it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Grounds = Literal["documented", "reported", "inferred"]


class Violation(NamedTuple):
    """One broken rule: its name, where (``messages.3.content.0.text``), what is wrong."""

    rule: str
    path: str
    message: str


class Rule(NamedTuple):
    """What a rule says and how sure it is."""

    says: str
    grounds: Grounds


RULES: dict[str, Rule] = {
    # the body
    "not-json": Rule("the body must be JSON: no bytes, NaN or other values", "inferred"),
    "lone-surrogate": Rule("no lone surrogates in any string", "reported"),
    "request-too-large": Rule("at most 32 MB", "documented"),
    "field-missing": Rule("required top-level fields", "inferred"),
    "field-unknown": Rule("no unknown top-level fields", "documented"),
    "max-tokens": Rule("an integer from 1 to the model's limit", "documented"),
    "stop-sequences": Rule("strings with something besides whitespace", "documented"),
    "sampling-range": Rule("temperature and top_p within 0..1", "documented"),
    "sampling-both": Rule("not both temperature and top_p on newer models", "inferred"),
    "effort": Rule("a level the model has", "documented"),
    "output-schema": Rule("no unsupported keywords in an output schema", "documented"),
    "container": Rule("an id, or an object with skills", "reported"),
    "system-prompt": Rule("a string or text blocks", "inferred"),
    # tools
    "tool-name": Rule("1 to 128 of letters, digits, _ and -", "inferred"),
    "tool-names-unique": Rule("tool names are unique", "inferred"),
    "tool-type": Rule("a known tool type", "documented"),
    "tool-schema": Rule("an object schema", "documented"),
    "tools-all-deferred": Rule("one tool at least isn't deferred", "reported"),
    "strict-tools": Rule("at most 20 strict tools", "documented"),
    "tool-choice": Rule("an object of a known type that names a declared tool, and only with tools", "inferred"),
    # thinking parameters
    "thinking-config": Rule("a type the model takes", "documented"),
    "thinking-budget": Rule("at least 1024 and below max_tokens", "documented"),
    "thinking-sampling": Rule("no temperature but 1, no top_k, top_p from 0.95", "inferred"),
    "thinking-forced-tool": Rule("no forced tool with thinking enabled", "documented"),
    # messages
    "messages-empty": Rule("at least one message", "inferred"),
    "message-shape": Rule("objects with role and content only", "documented"),
    "role-unknown": Rule("user, assistant, and system on some models", "inferred"),
    "role-system": Rule("no system role on models without it", "reported"),
    "system-placement": Rule("system entries follow a user turn and precede an answer or the end", "reported"),
    "content-shape": Rule("a string or a list of blocks", "inferred"),
    "content-empty": Rule("content isn't empty, except a last assistant message's", "documented"),
    "prefill-unsupported": Rule("models from 4.6 need a user message last", "documented"),
    "prefill-refused": Rule("the caller asked for a user message last", "documented"),
    "prefill-whitespace": Rule("a last assistant text has no trailing whitespace", "documented"),
    # blocks
    "block-shape": Rule("blocks are objects with a type", "inferred"),
    "block-unknown": Rule("a known block type", "inferred"),
    "block-role": Rule("a block type its role may hold", "inferred"),
    "block-field-missing": Rule("required fields", "inferred"),
    "block-field-unknown": Rule("no stray fields", "documented"),
    "block-field-type": Rule("fields of the right type", "inferred"),
    "text-empty": Rule("text isn't empty", "documented"),
    "text-whitespace": Rule("text has more than whitespace (assistant: except beside tool calls)", "reported"),
    "citation-shape": Rule("known citation types with their fields", "inferred"),
    # tool calls
    "tool-id": Rule("ids of letters, digits, _ and -", "documented"),
    "server-tool-id": Rule("srvtoolu_ and letters, digits, _", "reported"),
    "tool-use-name": Rule("1 to 200 of letters, digits, _ and -", "inferred"),
    "tool-input": Rule("the input is an object", "documented"),
    "tool-use-unanswered": Rule("each call has a result in the next user turn", "documented"),
    "tool-use-id-duplicate": Rule("ids are unique in one (merged) assistant turn", "reported"),
    "tool-result-orphan": Rule("each result answers a call of the turn before", "documented"),
    "tool-result-duplicate": Rule("one result a call", "inferred"),
    "tool-result-not-first": Rule("results come first in their (merged) turn, contiguous", "reported"),
    "tool-result-content": Rule("a string or a non-empty list", "reported"),
    "tool-result-error-content": Rule("an error result holds text only", "inferred"),
    "tool-reference-unknown": Rule("references name declared tools", "reported"),
    "server-tool-unanswered": Rule("server calls have results, unless in flight", "documented"),
    "server-result-orphan": Rule("server results follow their call, of its kind", "reported"),
    # thinking blocks
    "thinking-signature": Rule("a signature that isn't empty", "reported"),
    "thinking-content": Rule("a thinking string (it may be empty), redacted data", "reported"),
    "thinking-last": Rule("an assistant turn doesn't end with thinking (measured for the last one)", "documented"),
    "thinking-not-first": Rule("thinking enabled: a turn with thinking starts with it", "reported"),
    "thinking-missing": Rule("thinking enabled: the current tool loop starts with thinking", "documented"),
    "thinking-prefill": Rule("thinking enabled: no prefill", "documented"),
    "thinking-while-off": Rule("thinking off: none in the final assistant message", "documented"),
    # cache marks
    "cache-too-many": Rule("at most 4 marks in tools, system and messages", "documented"),
    "cache-shape": Rule("type ephemeral, ttl 5m or 1h", "inferred"),
    "cache-ttl-order": Rule("no 1h mark after a 5m mark", "inferred"),
    "cache-on-thinking": Rule("no mark on thinking", "documented"),
    "cache-on-empty-text": Rule("no mark on empty text", "documented"),
    "cache-nested": Rule("no mark inside a tool_result's content", "reported"),
    "cache-deferred-tool": Rule("no mark on a deferred tool", "reported"),
    # media
    "source": Rule("a known source with its fields", "documented"),
    "media-type": Rule("a supported media type", "documented"),
    "media-type-mismatch": Rule("the bytes are of the declared type", "documented"),
    "media-base64": Rule("plain base64, not empty", "inferred"),
    "image-broken": Rule("the bytes are an image", "reported"),
    "image-too-big": Rule("at most 5 MB", "reported"),
    "image-pixels": Rule("at most 8000 px a side", "documented"),
    "image-pixels-many": Rule("at most 2000 px a side with more than 20 images", "documented"),
    "images-too-many": Rule("at most 100 images, 600 on long-context models", "documented"),
    "pdf-broken": Rule("a complete PDF", "reported"),
    "pdf-pages": Rule("at most 100 pages, 600 on long-context models", "documented"),
    "citations-mixed": Rule("citations on all documents or none", "inferred"),
    "citations-with-output": Rule("no citations with structured output", "inferred"),
    # Converse
    "bedrock-first": Rule("the first message is the user's", "reported"),
    "bedrock-alternate": Rule("roles alternate", "documented"),
    "bedrock-tools": Rule("tool blocks need tools", "inferred"),
    "bedrock-id-length": Rule("ids of at most 64 characters", "documented"),
}
