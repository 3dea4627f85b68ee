"""Stage 5: media that a request can't hold, or was refused for (WIRE.md §4, FAULTS.md 70-72)."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import pytest
from normalizing import answered, call, said, text, user
from requesting import blocks, document, explained, image, pdf, png, roles, sent, texts

from turnstream.messages import MessageFactory, replace
from turnstream.operators.normalize import MediaLimits, normalize_for_api, request_messages

LEFT_OUT = "left out:"
MAKE = MessageFactory()


def in_result(*inner: Any) -> list[Any]:
    return [
        user("u1", "look"),
        said("a1", "m1", call("t1")),
        user("u2", [{"type": "tool_result", "tool_use_id": "t1", "content": list(inner)}]),
    ]


def widths(messages: list[Any]) -> list[int]:
    """The PNG widths that are left, in order."""
    found = [base64.b64decode(block["source"]["data"]) for block in blocks(messages, "image")]
    return [int.from_bytes(raw[16:20]) for raw in found]


# -- one image or document --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ({"data": png(8001, 1)}, "8000 pixels"),
        ({"data": png(1, 8001)}, "8000 pixels"),
        ({"data": png(1, 1, noise=bytes(4 << 20))}, "5242880"),
        ({"data": base64.b64encode(b"no image").decode()}, "no JPEG, PNG, GIF or WebP"),
        ({"data": "not base64!!"}, "no JPEG, PNG, GIF or WebP"),
        ({"data": ""}, "no data"),
        ({"data": None}, "no data"),
        ({"type": "s3"}, "no source"),
        ({"type": "url"}, "no url"),
        ({"type": "file", "file_id": " "}, "no file_id"),
    ],
)
def test_fault_70_an_image_that_is_refused_becomes_a_text(source: Any, why: str) -> None:
    for history in ([user("u", [image(**source), text("what?")])], in_result(image(**source))):
        out = sent(history)
        assert not blocks(out, "image")
        (stand_in,) = [words for words in texts(out) if LEFT_OUT in words]
        assert why in stand_in
        assert any(repair.stage == "strip" for repair in explained(history))


def test_an_image_at_the_limits_stays() -> None:
    history = [user("u", [image(8000, 8000), image(1, 8000)])]
    assert widths(sent(history)) == [8000, 1]
    assert not explained(history)


@pytest.mark.parametrize(
    "source",
    [
        {"media_type": "image/jpeg"},
        {"media_type": "image/tiff"},
        {"data": "data:image/png;base64," + png(1, 1)},
        {"data": png(1, 1)[:20] + "\n" + png(1, 1)[20:]},
        {"detail": "high"},
    ],
    ids=["another type", "a type that isn't taken", "data url", "line breaks", "stray field"],
)
def test_what_can_be_mended_of_an_image_is(source: Any) -> None:
    assert blocks(sent([user("u", [image(**source)])]), "image") == [image()]


def test_sources_elsewhere_stay() -> None:
    kept = [
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}, "title": "A"},
    ]
    assert sent([user("u", kept)])[0]["content"] == kept
    stray = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png", "detail": 1}}
    assert sent([user("u", [stray])])[0]["content"] == kept[:1]


@pytest.mark.parametrize("raw", [b"%PDF-1.7\n", b"<html>", b""])
def test_fault_72_a_broken_pdf_becomes_a_text(raw: bytes) -> None:
    bad = document(base64.b64encode(raw).decode(), title="notes.pdf")
    for history in ([user("u", [bad, text("read it")])], in_result(bad)):
        out = sent(history)
        assert not blocks(out, "document")
        assert 'document "notes.pdf" left out' in "".join(texts(out))


def test_fault_72_an_api_error_is_never_sent() -> None:
    history = [user("u1", "hi"), MAKE.api_error("API Error: 400 The PDF specified was not valid."), user("u2", "so?")]
    assert texts(sent(history)) == ["hi", "so?"]


def test_documents_that_can_be_mended_are() -> None:
    plain = {"type": "text", "media_type": "text/plain", "data": "<p>"}
    html = {"type": "document", "source": {"type": "text", "media_type": "text/html", "data": "<p>"}}
    coded = {
        "type": "document",
        "source": {"type": "base64", "media_type": "text/html", "data": base64.b64encode(b"<p>").decode()},
    }
    wrong = document(pdf())
    wrong = {**wrong, "source": {**wrong["source"], "media_type": "application/octet-stream"}}
    out = blocks(sent([user("u", [html, coded, wrong])]), "document")
    assert [block["source"] for block in out] == [plain, plain, document(pdf())["source"]]


@pytest.mark.parametrize(
    "source",
    [
        {"type": "s3", "uri": "s3://b/k"},
        {},
        None,
        {"type": "text", "media_type": "text/plain", "data": " "},
        {"type": "content", "content": []},
        {"type": "content", "content": " "},
        {"type": "content", "content": 7},
        {"type": "base64", "media_type": "text/plain", "data": "/w=="},
        {"type": "base64", "media_type": "application/pdf"},
    ],
)
def test_documents_that_cant_be_mended_become_texts(source: Any) -> None:
    out = sent([user("u", [{"type": "document", "source": source}, text("read")])])
    assert not blocks(out, "document")
    assert len(texts(out)) == 2


def test_a_document_of_blocks_holds_texts_and_images() -> None:
    content = [text("a"), text(" "), image(9000), {"type": "video"}, image(5), {"type": "note", "text": "said"}]
    out = sent([user("u", [{"type": "document", "source": {"type": "content", "content": content}}])])
    (block,) = out[0]["content"]
    inner = block["source"]["content"]
    assert [item["type"] for item in inner] == ["text", "text", "image", "text"]
    assert (inner[0]["text"], inner[3]["text"]) == ("a", "said")
    assert LEFT_OUT in inner[1]["text"]


def test_names_that_arent_names_go() -> None:
    bad = document(pdf(), title=" ", context=7, citations=True)
    assert sent([user("u", [bad])])[0]["content"] == [document(pdf())]


def test_search_results() -> None:
    whole = {
        "type": "search_result",
        "source": "s",
        "title": "t",
        "content": [text("a")],
        "citations": {"enabled": True},
    }
    bare = {**whole, "source": ""}
    mended = {**whole, "content": [text("a"), text(""), "b"], "citations": 7}
    out = sent([user("u", [whole, bare, mended])])[0]["content"]
    assert out[0] == whole
    assert out[1] == text("t\na")
    assert out[2] == {"type": "search_result", "source": "s", "title": "t", "content": [text("a"), text("b")]}


# -- all media of a request -------------------------------------------------------------------------------


def test_fault_70_many_images_make_large_ones_too_large() -> None:
    history = [user("u", [image(2162), *[image()] * 24])]
    out = sent(history)
    assert widths(out) == [1] * 24
    assert "2000 pixels" in texts(out)[0]
    few = [user("u", [image(2162), *[image()] * 19])]
    assert widths(sent(few)) == [2162] + [1] * 19


def test_many_large_images_only_as_many_go_as_must() -> None:
    history = [user(f"u{n}", [image(3000 + n)]) for n in range(23)]
    assert widths(sent(history)) == [3000 + n for n in range(3, 23)]


def test_images_in_tool_results_count() -> None:
    out = sent([*in_result(image(2500)), said("a2", "m2", text("ok")), user("u3", [image()] * 20)])
    assert widths(out) == [1] * 20
    assert roles(out) == "user assistant user assistant user"


def test_images_in_tool_results_alone_count() -> None:
    assert widths(sent(in_result(image(2500), *[image()] * 20))) == [1] * 20


def test_no_more_images_than_a_request_takes() -> None:
    limits = dataclasses.replace(MediaLimits(), images=3)
    history = [user("u", [image(n) for n in range(1, 6)])]
    assert widths(sent(history, limits=limits)) == [3, 4, 5]


def test_no_more_pages_than_a_request_takes() -> None:
    limits = dataclasses.replace(MediaLimits(), pdf_pages=10)
    history = [user("u", [document(pdf(n), title=str(n)) for n in (6, 11, 4, 5)])]
    assert [block["title"] for block in blocks(sent(history, limits=limits), "document")] == ["4", "5"]


def test_pages_by_model() -> None:
    history = [user("u", [document(pdf(300))])]
    assert not blocks(sent(history, model="claude-sonnet-4-5"), "document")
    assert blocks(sent(history, model="claude-opus-4-6"), "document")


def test_fault_71_a_request_that_is_too_large_loses_its_oldest_media() -> None:
    size = len(png(1, 1, noise=bytes(30_000)))
    limits = dataclasses.replace(MediaLimits(), request_bytes=3 * size, reserved_bytes=size // 2)
    history = [user(f"u{n}", [image(data=png(n, 1, noise=bytes(30_000))), text(str(n))]) for n in range(1, 6)]
    out = sent(history, limits=limits)
    assert widths(out) == [4, 5]
    assert [words for words in texts(out) if LEFT_OUT not in words] == list("12345")


def test_fault_71_base64_counts_not_bytes() -> None:
    data = png(1, 1, noise=bytes(30_000))
    limits = dataclasses.replace(MediaLimits(), request_bytes=len(base64.b64decode(data)) + 3000, reserved_bytes=0)
    assert not blocks(sent([user("u", [image(data=data)])], limits=limits), "image")


def test_a_request_too_large_without_media_is_only_noted() -> None:
    limits = dataclasses.replace(MediaLimits(), request_bytes=50, reserved_bytes=0)
    history = [user("u", [image(), text("x" * 100)])]
    assert "x" * 100 in texts(sent(history, limits=limits))
    assert any(repair.what == "left the request too large" for repair in explained(history, limits=limits))


def test_citations_on_all_documents_or_none() -> None:
    on = document(pdf(), citations={"enabled": True})
    off = document(pdf(), citations={"enabled": False})
    out = sent([user("u1", [on, text("a")]), *in_result(document(pdf()))[1:], user("u3", [off])])
    assert [block["citations"] for block in blocks(out, "document")] == [{"enabled": True}] * 3
    assert "citations" not in sent([user("u", [document(pdf())])])[0]["content"][0]


# -- after a refusal --------------------------------------------------------------------------------------

TOO_WIDE = "At least one of the image dimensions exceed max allowed size: 8000 pixels"


def place(number: int, block: int, inner: int | None = None) -> str:
    below = "" if inner is None else f".tool_result.content.{inner}"
    return f"messages.{number}.content.{block}{below}.image.source.base64.data: {TOO_WIDE}"


def long_history() -> list[Any]:
    return [
        user("u0", [image(1), document(pdf(1))]),
        said("a0", "m0", text("one")),
        user("u1", [image(2), text("see"), image(3)]),
        said("a1", "m1", call("t1")),
        user("u2", [{"type": "tool_result", "tool_use_id": "t1", "content": [text("shot"), image(4)]}]),
        said("a2", "m2", text("two")),
        user("u3", "go on"),
    ]


def test_fault_70_the_block_that_the_error_names_goes() -> None:
    assert widths(sent(long_history(), refused=place(2, 2))) == [1, 2, 4]
    assert widths(sent(long_history(), refused=place(4, 0, 1))) == [1, 2, 3]
    both = place(0, 0) + "; " + place(2, 0)
    assert widths(sent(long_history(), refused=both)) == [3, 4]


def test_the_number_counts_in_the_request_that_was_sent() -> None:
    """What came before is merged, dropped and added: the error speaks of what went out."""
    history = [
        said("a", "m", text("hello")),  # a stand-in user is put before it
        user("u1", " "),
        user("u2", [text(""), image(1)]),
        user("u3", [image(2)]),
    ]
    out = sent(history)
    assert roles(out) == "user assistant user"
    assert widths(out) == [1, 2]
    assert widths(sent(history, refused=place(2, 1))) == [1]


def test_an_error_that_names_nothing_strips_the_nearest_message() -> None:
    assert widths(sent(long_history(), refused=TOO_WIDE)) == [1, 2, 3]
    without = long_history()[:4]
    assert widths(sent(without, refused=TOO_WIDE)) == [1]


def test_kinds_by_error() -> None:
    out = sent(long_history(), refused="The PDF specified was not valid.")
    assert (widths(out), blocks(out, "document")) == ([1, 2, 3, 4], [])
    out = sent(long_history()[:2], refused="Request exceeds the maximum size")
    assert (widths(out), blocks(out, "document")) == ([], [])


def test_an_error_that_names_another_block_falls_back_to_the_nearest() -> None:
    assert widths(sent(long_history(), refused=place(1, 0))) == [1, 2, 3]
    assert widths(sent(long_history(), refused=place(99, 7))) == [1, 2, 3]


def test_fault_70_an_error_in_the_history_strips_before_every_later_request() -> None:
    """The session isn't stuck: the API error stays in the history, and what it was about stays out."""
    history = [*long_history(), MAKE.api_error(f"API Error: 400 {place(2, 0)}"), user("u4", "and now?")]
    assert widths(sent(history)) == [1, 3, 4]
    history = [*long_history()[:4], MAKE.api_error(f"API Error: {TOO_WIDE}"), *long_history()[4:]]
    assert widths(sent(history)) == [1, 4]  # the nearest before the error, not the nearest of all
    twice = [*long_history(), MAKE.api_error(TOO_WIDE), user("u5", "?"), MAKE.api_error(TOO_WIDE), user("u6", "?")]
    assert widths(sent(twice)) == [1]


def test_the_error_text_may_be_in_the_details() -> None:
    error = replace(MAKE.api_error("The image was refused"), error_details=place(0, 0))
    assert widths(sent([*long_history(), error, user("u4", "?")])) == [2, 3, 4]


def test_an_error_about_something_else_strips_nothing() -> None:
    history = [*long_history(), MAKE.api_error("API Error: 529 Overloaded"), user("u4", "?")]
    assert widths(sent(history, refused="prompt is too long: 211000 tokens > 200000 maximum")) == [1, 2, 3, 4]


@pytest.mark.parametrize("refused", [TOO_WIDE, place(2, 2), place(4, 0, 1), "Request exceeds the maximum size"])
def test_stripping_twice_strips_no_more(refused: str) -> None:
    out = normalize_for_api(long_history(), refused=refused)
    assert normalize_for_api(out, refused=refused) == out
    assert explained(out, refused=refused) == []
    assert not any(before is after for before, after in zip(long_history(), out, strict=True))


def test_stripping_twice_strips_no_more_of_a_merged_message() -> None:
    """Two messages of images become one; only the later one was refused."""
    history = [user("u1", [image(1)]), user("u2", [image(2), image(3)])]
    out = normalize_for_api(history, refused=TOO_WIDE)
    assert widths(request_messages(out)) == [1]
    assert normalize_for_api(out, refused=TOO_WIDE) == out


def test_the_same_image_twice() -> None:
    history = [user("u0", [image(7)]), said("a0", "m0", text("x")), user("u1", [image(7)]), said("a1", "m1", text("y"))]
    out = sent(history, refused=TOO_WIDE)
    assert widths(out) == [7]
    assert out[0]["content"] == [image(7)]


def test_nothing_to_strip() -> None:
    assert texts(sent([user("u", "hi")], refused=TOO_WIDE)) == ["hi"]


def test_the_history_isnt_touched() -> None:
    history = long_history()
    out = normalize_for_api(history, refused=place(2, 0))
    assert history == long_history()
    assert request_messages(out)[1]["content"] is history[1].message["content"]


def test_answered_blocks_stay_where_they_are() -> None:
    out = sent(in_result(text("a"), image(9000), text("b")))
    assert [item["type"] for item in out[2]["content"][0]["content"]] == ["text"] * 3
    assert out[2]["content"][0]["tool_use_id"] == answered("t1")["tool_use_id"]
