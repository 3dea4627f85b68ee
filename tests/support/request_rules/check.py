"""The two ways in: a whole body, or its messages only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Literal

from request_rules.blocks import Ways
from request_rules.body import check_fields, check_system, check_thinking_config, thinking_mode
from request_rules.cache_marks import check_marks, note_mark
from request_rules.facts import Facts, json_size
from request_rules.limits import Limits, limits_for
from request_rules.memo import Memo
from request_rules.models import Model, parse_model
from request_rules.order import check_converse, check_end, check_system_entries
from request_rules.output import check_output, output_format
from request_rules.pairing import check_calls, check_server_calls
from request_rules.rules import Violation
from request_rules.thinking import Mode, check_thinking
from request_rules.tools import check_choice, check_tools, tool_names
from request_rules.turns import Entry, merge, read

Dialect = Literal["anthropic", "bedrock"]


class _Case:
    """What a check of messages needs besides them."""

    def __init__(self, model: Model, dialect: Dialect, limits: Limits | None) -> None:
        self.model = model
        self.bedrock = dialect == "bedrock"
        self.limits = limits if limits is not None else limits_for(model, dialect)
        self.mode: Mode = "off"
        self.tools: frozenset[str] | None = None
        self.has_tools = False
        self.refuse_prefill = False
        self.structured = False
        self.marks: list[tuple[str, str]] = []
        self.last_mark: list[tuple[str, str]] = []
        self.reserved = 0
        self.size = 0
        self.ways = Ways(
            bedrock=self.bedrock,
            media_types=model.checks_media_type,
            image_bytes=self.limits.image_base64_bytes,
            image_pixels=self.limits.image_pixels,
            pdf_pages=self.limits.pdf_pages,
        )


def check_request(
    body: dict[str, Any],
    *,
    model: str | None = None,
    dialect: Dialect = "anthropic",
    limits: Limits | None = None,
    betas: Collection[str] = (),
    memo: Memo | None = None,
) -> list[Violation]:
    """What the API would refuse a request body for; empty when nothing is known against it.

    Args:
        body: the request as it would be sent (``model`` inside, as the vendor's own API takes it).
        model: overrides the body's model name.
        dialect: ``"bedrock"`` adds Converse's rules, stated on Messages shapes.
        limits: figures other than the model's own.
        betas: the beta headers sent.
        memo: facts of blocks kept between calls.
    """
    out: list[Violation] = []
    named = body.get("model")
    known = parse_model(model if model is not None else named if isinstance(named, str) else None)
    case = _Case(known, dialect, limits)
    around = Facts(None)
    check_fields(body, known, out)
    tools = body.get("tools")
    if tools is not None:
        check_tools(tools, case.limits, around, out)
    if body.get("tool_choice") is not None:
        check_choice(body["tool_choice"], tools, out)
    if body.get("system") is not None:
        check_system(body["system"], around, out)
    check_thinking_config(body, known, betas, out)
    check_output(body, known, out)
    case.marks = around.marks
    own = Facts(None)
    note_mark(own, body, "")
    case.last_mark = own.marks
    case.size = json_size({name: value for name, value in body.items() if name != "messages"}, own)
    out.extend(Violation(rule, path, said) for rule, path, said in (*around.problems, *own.problems))
    case.mode = thinking_mode(body.get("thinking"), known)
    case.tools = tool_names(tools) if tools is not None else frozenset()
    case.has_tools = bool(tools)
    case.structured = output_format(body) is not None
    messages = body.get("messages")
    if isinstance(messages, list):
        _check(messages, case, memo, out)
    elif "messages" in body:
        out.append(Violation("messages-empty", "messages", "Input should be a valid list"))
    return out


def check_messages(
    messages: Iterable[Any],
    *,
    model: str | None = None,
    dialect: Dialect = "anthropic",
    tools: Sequence[Any] | None = None,
    thinking: bool | Mode = False,
    prefill: Literal["refuse", "allow"] = "allow",
    reserved_cache_marks: int = 0,
    limits: Limits | None = None,
    memo: Memo | None = None,
) -> list[Violation]:
    """What the API would refuse the messages of an otherwise plausible request for.

    Args:
        messages: ``{"role", "content"}`` objects, as a normalizer puts them out.
        model: the model they go to; unknown means that rules only some models have don't hold.
        dialect: ``"bedrock"`` adds Converse's rules.
        tools: the declared tools; None when unknown: then nothing is said against tool blocks or references.
        thinking: what the request will say. True is ``"enabled"`` (the strictest) unless the model only takes
            adaptive thinking; False is ``"off"``.
        prefill: ``"refuse"``: a conversation that ends with the assistant is a violation on any model
            (a turn that pauses in server tools is none).
        reserved_cache_marks: marks that tools and system will hold.
        limits: figures other than the model's own.
        memo: facts of blocks kept between calls; give the same one for all prefixes of a conversation.
    """
    known = parse_model(model)
    case = _Case(known, dialect, limits)
    if isinstance(thinking, bool):
        case.mode = ("adaptive" if known.since(4, 6) else "enabled") if thinking else "off"
    else:
        case.mode = thinking
    case.tools = tool_names(list(tools)) if tools is not None else None
    case.has_tools = tools is None or bool(tools)
    case.refuse_prefill = prefill == "refuse"
    case.reserved = reserved_cache_marks
    out: list[Violation] = []
    _check(list(messages), case, memo, out)
    return out


def _check(messages: list[Any], case: _Case, memo: Memo | None, out: list[Violation]) -> None:
    if not messages:
        out.append(Violation("messages-empty", "messages", "at least one message is required"))
        return
    entries = read(messages, case.ways, memo, out)
    turns = merge(entries)
    check_calls(turns, out)
    check_server_calls(turns, out)
    check_thinking(turns, case.mode, out)
    check_system_entries(entries, case.model, case.bedrock, out)
    if entries:
        check_end(turns, entries, case.model, case.refuse_prefill, out)
    if case.bedrock:
        check_converse(entries, case.has_tools, out)
    _collected(entries, case, out)


def _collected(entries: list[Entry], case: _Case, out: list[Violation]) -> None:
    """Rules about everything that blocks hold together: marks, images, references, documents, size."""
    marks = list(case.marks)
    images: list[tuple[str, int, int]] = []
    citing: list[bool] = []
    size = case.size + 14
    for entry in entries:
        size += 34
        for number, facts in enumerate(entry.blocks):
            size += facts.size + 1
            if not (facts.marks or facts.images or facts.references or facts.citing):
                continue
            base = entry.path(number)
            marks.extend((ttl, f"{base}.{path}") for ttl, path in facts.marks)
            images.extend((f"{base}.{path}source", width, height) for path, width, height in facts.images)
            citing.extend(facts.citing)
            if case.tools is not None:
                out.extend(
                    Violation("tool-reference-unknown", f"{base}.{path}", f"unknown tool {name}")
                    for path, name in facts.references
                    if name not in case.tools
                )
    out.extend(check_marks(marks + case.last_mark, case.limits.cache_marks, case.reserved))
    if len(images) > case.limits.images:
        out.append(Violation("images-too-many", images[-1][0], f"{len(images)} > {case.limits.images}"))
    if len(images) > case.limits.many_images:
        most = case.limits.many_image_pixels
        out.extend(
            Violation("image-pixels-many", path, f"{width}x{height} exceeds {most} pixels with many images")
            for path, width, height in images
            if max(width, height) > most
        )
    if any(citing):
        if not all(citing):
            out.append(Violation("citations-mixed", "messages", "citations on all or none of the documents"))
        if case.structured:
            out.append(Violation("citations-with-output", "output_config.format", "incompatible with citations"))
    if size > case.limits.request_bytes:
        out.append(Violation("request-too-large", "", f"{size} bytes > {case.limits.request_bytes}"))
