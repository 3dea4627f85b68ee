"""The plain look of each message and block: a piece of text, safe for a terminal (WIRE.md §5, renderers)."""

from __future__ import annotations

import re
from typing import Any, Final

from turnstream.messages.jsonvalue import dumps
from turnstream.messages.texts import is_synthetic
from turnstream.messages.types import (
    AssistantMessage,
    AttachmentMessage,
    CollapsedReadSearch,
    GroupedToolUse,
    ProgressMessage,
    ResponseFailed,
    SystemMessage,
    UserMessage,
)
from turnstream.sinks.ui.supersede import content_of
from turnstream.sinks.ui.terminal import Glyphs, Style, safe, shorten

__all__ = ["THINKING", "Looks"]

THINKING: Final = "thinking: "

_RESULT_LINES: Final = 8
_LOCAL_TAGS: Final = re.compile(r"</?(?:local-command|command|bash)-[a-z]+>")


class Looks:
    """Makes pieces: whole lines, the last one's end may be missing. An empty piece isn't shown.

    Args:
        encoding: of the terminal; decides between marks and their ASCII stand-ins.
        color: whether to use SGR sequences.
        width: columns, for what is cut to one line.
        history: where the full history is, named by the divider of a compaction.
    """

    def __init__(self, *, encoding: str | None, color: bool, width: int, history: str) -> None:
        self.glyphs = Glyphs(encoding)
        self.style = Style(color)
        self._width = max(width, 20)
        self._history = history

    # -- the model -----------------------------------------------------------------------------------

    def block(self, block: Any, *, invalid: bool = False) -> str:
        """One content block of an answer."""
        kind = block.get("type") if isinstance(block, dict) else None
        match kind:
            case "text":
                return safe(_string(block.get("text")))
            case "thinking":
                text = _string(block.get("thinking"))
                return self.style.dim(THINKING + safe(text)) if text else ""
            case "redacted_thinking":
                return self.style.dim(THINKING + "[redacted]")
            case str() if kind.endswith("tool_use"):
                return self._tool_use(block.get("name"), block.get("input"), invalid)
            case str() if kind.endswith("tool_result"):
                return self._result(block.get("content"), failed=block.get("is_error") is True)
            case _:
                return self.style.dim(f"[{self._line(str(kind))}]")

    def after(self, message: AssistantMessage) -> list[str]:
        """What stands below an answer's blocks: tools that never came to their end, the incomplete mark."""
        pieces = [
            f"{self._tool_use(entry.get('name'), entry.get('raw'), False)} {self.style.red('[incomplete]')}"
            for entry in message.unfinished_tool_inputs or ()
        ]
        if message.is_aborted_mid_stream and content_of(message):
            pieces.append(self.style.red("[incomplete]"))
        return pieces

    def _tool_use(self, name: Any, value: Any, invalid: bool) -> str:
        title = self._line(_string(name) or "?")
        if isinstance(value, str):
            text = value
        else:
            text = "" if not value else dumps(value).decode("utf-8", "replace")
        room = max(self._width - len(title) - 4, 16)
        piece = f"{self.glyphs.tool} {self.style.bold(title)}({safe(shorten(text, room, self.glyphs.ellipsis))})"
        return f"{piece} {self.style.red('[invalid input]')}" if invalid else piece

    # -- results -------------------------------------------------------------------------------------

    def _result(self, content: Any, *, failed: bool) -> str:
        text, bad = _result_text(content)
        room = max(self._width - 5, 16)
        # Only what can be shown is walked through.
        head = text[: room * 8 * _RESULT_LINES]
        lines = safe(head).rstrip("\n").split("\n")[:_RESULT_LINES]
        more = text.rstrip("\n").count("\n") + 1 - len(lines)
        ellipsis = self.glyphs.ellipsis
        shown = [line if len(line) <= room else line[: room - len(ellipsis)] + ellipsis for line in lines]
        if more > 0:
            shown.append(f"{ellipsis} +{more} line{'s' * (more > 1)}")
        first, indent = f"  {self.glyphs.result} ", " " * (len(self.glyphs.result) + 3)
        piece = first + f"\n{indent}".join(shown)
        return self.style.red(piece) if failed or bad else self.style.dim(piece)

    # -- everything else -----------------------------------------------------------------------------

    def message(self, message: Any) -> list[str]:
        """The pieces of anything but an answer; none for what isn't shown in a terminal."""
        match message:
            case UserMessage():
                return self._user(message)
            case SystemMessage():
                return [self._system(message)]
            case AttachmentMessage():
                return [self.style.dim(f"[attachment: {self._line(str(message.attachment.get('type')))}]")]
            case ProgressMessage():
                return [self._progress(message.data)]
            case GroupedToolUse():
                inputs = [block.get("input") for use in message.messages for block in content_of(use)]
                return [
                    self._tool_use(f"{message.tool_name} x {len(inputs)}", "; ".join(map(_input_text, inputs)), False)
                ]
            case CollapsedReadSearch():
                return [self.style.dim("  " + self._line(_reads_text(message)))]
            case ResponseFailed():
                return [self._error(f"{message.error.get('type')}: {message.error.get('message')}")]
            case _:
                return []

    def _user(self, message: UserMessage) -> list[str]:
        # Meta is for the model, the other for the full-history view (WIRE.md §2).
        if message.is_meta or message.is_visible_in_transcript_only:
            return []
        content = message.message.get("content")
        if is_synthetic(message):
            text = content if isinstance(content, str) else content[0]["text"]  # type: ignore[index]
            return [self.style.dim(safe(text))]
        pieces: list[str] = []
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or ():
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "tool_result":
                pieces.append(self._result(block.get("content"), failed=block.get("is_error") is True))
            elif kind == "text":
                text = safe(_string(block.get("text"))).strip("\n")
                pieces.append(self.style.bold("> " + text.replace("\n", "\n> ")) if text else "")
            else:
                pieces.append(self.style.bold(f"> [{self._line(str(kind))}]"))
        return pieces

    def _system(self, message: SystemMessage) -> str:
        if message.is_meta:
            return ""
        content = _string(message.content)
        fields = message.fields
        match message.subtype:
            case "compact_boundary":
                return self._divider(content or "Conversation compacted", f"full history: {self._history}")
            case "microcompact_boundary":
                return self._divider(content or "Context microcompacted")
            case "api_error":
                return self._error(_retry_text(content, fields))
            case "local_command":
                return self.style.dim(safe(_LOCAL_TAGS.sub("", content)).strip("\n"))
            case "turn_duration" if isinstance(fields.get("durationMs"), (int, float)):
                return self.style.dim(f"[turn: {fields['durationMs'] / 1000:.1f} s]")
        if not content:
            return self.style.dim(f"[{self._line(str(message.subtype))}]")
        return self._error(content) if message.level == "error" else self.style.dim(safe(content))

    def _divider(self, *parts: str) -> str:
        line = self.glyphs.line
        return self.style.dim(f"{line * 2} {safe(' - '.join(parts))} ".ljust(self._width, line))

    def _error(self, text: str) -> str:
        return self.style.red(f"{self.glyphs.error} {safe(text)}")

    def _progress(self, data: Any) -> str:
        data = data if isinstance(data, dict) else {}
        kind = _string(data.get("type")) or "progress"
        details = (data.get(key) for key in ("message", "hookName", "text", "serverName", "description", "command"))
        detail = next((text for text in details if isinstance(text, str) and text), "")
        return self.style.dim("  " + self._line(f"{kind}: {detail}" if detail else kind))

    def _line(self, text: str) -> str:
        return safe(shorten(text, self._width - 4, self.glyphs.ellipsis))

    def api_error(self, message: AssistantMessage) -> list[str]:
        """A synthetic API error (WIRE.md §2)."""
        texts = [_string(block.get("text")) for block in content_of(message) if isinstance(block, dict)]
        return [self._error(text) for text in texts if text]


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _input_text(value: Any) -> str:
    """A tool's input in a group: its values alone, the group's line has little room."""
    if isinstance(value, dict):
        return ", ".join(v if isinstance(v, str) else dumps(v).decode("utf-8", "replace") for v in value.values())
    return _string(value)


def _reads_text(message: CollapsedReadSearch) -> str:
    parts = []
    if message.read_count:
        parts.append(f"read {message.read_count} file{'s' * (message.read_count > 1)}")
    if message.search_count:
        parts.append(f"searched {message.search_count} time{'s' * (message.search_count > 1)}")
    files = f": {', '.join(message.files)}" if message.files else ""
    return (", ".join(parts) or "nothing read") + files


def _retry_text(content: str, fields: dict[str, Any]) -> str:
    error = fields.get("error")
    if isinstance(error, dict):
        inner = error.get("error")
        error = inner if isinstance(inner, dict) else error
        content = content or f"{error.get('type')}: {error.get('message')}"
    text = content or _string(error) or "api_error"
    wait, attempt, most = fields.get("retryInMs"), fields.get("retryAttempt"), fields.get("maxRetries")
    if isinstance(wait, (int, float)):
        text += f" - retry in {wait / 1000:.1f} s"
        if attempt is not None:
            text += f" ({attempt}/{most})" if most is not None else f" ({attempt})"
    return text


def _result_text(content: Any) -> tuple[str, bool]:
    """What a tool brought, as text, and whether it is an error."""
    if isinstance(content, str):
        return content or "(no output)", False
    if isinstance(content, dict):
        code = content.get("error_code")
        if isinstance(code, str):
            return code, True
        for keys in (("text",), ("stdout", "stderr")):
            texts = [text for key in keys if isinstance(text := content.get(key), str) and text]
            if texts:
                return "\n".join(texts), False
        return f"[{content.get('type')}]", False
    if isinstance(content, list):
        parts = [
            _string(block["text"])
            if isinstance(block.get("text"), str)
            else f"[{block.get('title') or block.get('type')}]"
            for block in content
            if isinstance(block, dict)
        ]
        return "\n".join(parts) or "(no output)", False
    return "(no output)", False
