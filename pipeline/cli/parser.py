"""The parser of the command line. It imports nothing of ours: ``--help`` must cost nothing."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["build_parser"]

_REPLAY_HELP = """\
Play recorded streams through the same stages and sinks that a live stream takes.

A FILE may hold plain server-sent events, NDJSON of payloads (also in wrappers) or one JSON message; or
messages: a transcript (JSONL, in the order of the file), items (`--output items`) or the lines of
`--output-format stream-json`; its first records tell, and standard error says so. `-` is standard input.
Several files are one session, in order.

A transcript that is replayed alone into a new one (--transcript) keeps its session id and its titles."""

_EXIT = """\
says what and where); 2 usage; 130 interrupted and 143 terminated (what is open is kept and marked, standard
error says what was lost; a second signal ends at once); 141 standard output was closed early"""

_REPLAY_EXIT = f"""\
exit status: 0 every answer is complete; 1 an answer failed (all that came was delivered, standard error
{_EXIT}"""

_SEND_HELP = """\
Send one request and stream its answer through the same stages and sinks as a replay: a PROMPT, or the body of a
Messages API request. The key is taken from the environment's ANTHROPIC_API_KEY. With --transcript, the last user
message is in the file before the request goes out.

What fails but may pass (connection, silence, a cut answer, overload, 408, 409, 429, 5xx) is tried again after a wait,
what had come of it is taken back; 400, 401, 403 and 404 are told at once. Then, once, without streaming, or with
another model. docs/faults.md has the rules."""

_SEND_EXIT = f"""\
exit status: 0 the answer is complete; 1 it failed (all that came was delivered, standard error
{_EXIT}"""


_SERVE_HELP = """\
Serve recorded streams as the Messages API does, streaming or not, to any client: the first line on standard output
is the URL to point it at. A request gets the recording that its header x-turnstream-recording or its model names,
else the next in turn. A request's header x-turnstream-fault goes before --fault.

faults, each also with others, parted by commas:
  stall-after=N cut-after=N close-after=N eof-after=N   after N events: silence; a reset; the connection closed in
                                                        the body; the body ended as if that were all
  garbage-after=N overloaded-after=N pings-after=N      then: garbage; an error event; nothing but pings
  half-utf8-after=N bad-json-after=N                    the end inside a character; an event of half an object
  (each without `-after=N`: at once; N may be start, thinking, text, tool, blocks or stop-reason, too)
  429[=SECONDS] 500 503 529 …    refuse, with retry-after: SECONDS
  first-byte-stall[=SECONDS]     the headers come late, or never
  empty html json-body sse-body no-content              no byte; a page; JSON for a stream; a stream for JSON; no block
  slow=SECONDS keepalive=SECONDS comments=SECONDS       before each event; signs of life while nothing comes
  crlf no-event-names content-type[=TYPE] error-type=TYPE
  times=K                        for K requests, then all is well; only=stream or only=json"""

_SERVE_EXIT = """\
exit status: 0 SIGINT or SIGTERM came (a second one ends at once), or all were served (--once); 2 usage, a recording
can't be read, or the address can't be had"""

_RECORD_HELP = """\
A reverse proxy for any client of the Messages API: the first line on standard output is the URL to point it at. Every
request goes to --upstream, its answer comes back as it is, each chunk at once. Answers of POST /v1/messages are
recorded in --dir (.sse with arrival times for `turnstream replay --speed 1` and `turnstream serve`, .json), and their
messages in DIR/transcripts. A recorder that is slow or fails drops its recording, never a client's stream.

GET /metrics and /-/metrics say what passed (JSON; for Prometheus by Accept or ?format=prometheus), /-/health that the
proxy is there. Keys are never kept: of a request nothing is written without --bodies."""

_RECORD_EXIT = """\
exit status: 0 SIGINT or SIGTERM came (open streams get --grace seconds; a second signal ends at once); 1 likewise, but
recordings were lost at the end; 2 usage, or the folder or the address can't be had"""

_BENCH_HELP = """\
Measure turnstream, the floors it is compared with and, with --peers, what others use for the same job: in turn,
round by round, on byte streams made from a seed. Workloads: A many small deltas, B one tool input of 2 MB, C many
short answers, D deltas of 2 KB; growth: what a message costs to normalize in conversations of 1,000, 10,000 and
100,000 messages; transcript: appending and resuming beside bare loops, files of up to 1 GB (made in TMPDIR), lists of
10,000 sessions; live: over loopback from a server process, CPU of an event that comes alone beside a bare aiohttp loop,
how many streams at once keep up (beside the anthropic SDK, if installed), memory of an idle one. Progress goes to
standard error."""

_BENCH_EXIT = """\
exit status: 0 measured (whatever the figures are); 1 a contender left something out; 2 usage; 130 interrupted

peers: pip install 'turnstream[bench]'; under Node: npm install eventsource-parser rxjs @anthropic-ai/sdk in a folder
that the environment variable TURNSTREAM_BENCH_NODE names"""

_MESSAGES_FILE = """\
A FILE may hold a transcript (JSONL), NDJSON of messages (`replay --output messages`) or the lines of
`--output-format stream-json`, also mixed; `-` is standard input. A line that is no record is told on standard
error and passed over."""

_NORMALIZE_HELP = f"""\
Print a conversation as the API takes it (one {{"role", "content"}} a line) or as a display shows it: one message
with one content block a line, each tool's hooks and result behind it; uses of one tool in a row are a
grouped_tool_use, runs of reading and searching a collapsed_read_search.

{_MESSAGES_FILE}

Messages are taken in the order of the file. The records of sub-agents are left out, unless there are no others
(a sub-agent's own file); of records with the same uuid the last one counts, in the place of the first. Which
branch of a fork is the current one isn't asked."""

_NORMALIZE_EXIT = """\
exit status: 0 printed; 1 the file holds no message of a conversation, or none is left to print; 2 usage, or a file
can't be read; 130 interrupted; 141 standard output was closed early"""

_INSPECT_HELP = f"""\
Count what a file of messages holds: records by type and subtype, tools and how they ended, tokens (of each answer
the last numbers, once), compactions, forks, unknown records, bad lines.

{_MESSAGES_FILE}"""

_INSPECT_EXIT = """\
exit status: 0 counted; 1 the file holds no message of a conversation (what it holds is still printed); 2 usage, or
the file can't be read; 130 interrupted; 141 standard output was closed early"""

_SCHEMA_HELP = (
    "Print the JSON Schema (2020-12) of messages in their wire form: one line of a transcript, one of NDJSON."
)

_ROOT_HELP = "the folder that holds `projects` (default: $TURNSTREAM_ROOT, else turnstream in your data folder)"

_SESSIONS_HELP = """\
List the sessions below a root, the last active first: files projects/<folder>/<uuid>.jsonl that hold a
conversation. Files that are as they were at the last listing aren't read again. Tokens are all that went in and
came out, of each answer the last numbers, once."""

_SESSIONS_EXIT = """\
exit status: 0 listed (also if there are none); 1 a folder can't be read; 2 usage, or the root is no folder;
130 interrupted; 141 standard output was closed early"""

_PRUNE_HELP = """\
Say what would be removed, and with --yes remove it: sessions by age, number and size (transcript, side folder,
sub-agents), then what nobody needs any more: bytes of lines that were taken back, tool results that no line names,
folders whose session is gone. A session that is open stays. Without a criterion no session goes."""

_PRUNE_EXIT = """\
exit status: 0 removed, or said what would be; 1 something couldn't be removed or looked at; 2 usage, or the root
is no folder; 130 interrupted; 141 standard output was closed early"""

_SHOW_HELP = """\
Show a session as a display shows it: the conversation that a resume would go on with, since the last compaction;
with --full from its beginning. Branches that were left are named on standard error and shown with --at. In a
terminal through a pager ($PAGER, else less)."""

_SHOW_EXIT = """\
exit status: 0 shown (lines that can't be read are told on standard error); 1 the file holds no message of a
conversation; 2 usage, there is no such session, or it can't be read; 130 interrupted; 141 standard output was
closed early"""

_FORK_HELP = """\
Copy a session's conversation up to a record into a new session, which can be gone on with; the old one stays as it
is. Prints the new file's path. Records keep their ids and say where they are from (forkedFrom)."""

_FORK_EXIT = """\
exit status: 0 forked; 1 there is no such record, or the session can't be read or the copy written; 2 usage, or
there is no such session"""

_DOCTOR_HELP = """\
Say what is wrong with transcripts: lines that a crash or a second writer tore, lost links of the chain, repeats,
missing results, and more; with --fix mend it. The original stays beside the mended file (.bak), what can't be read
goes to .rejected, lines in order keep their bytes. A session that is open isn't mended. Of a folder all
transcripts (*.jsonl) below it."""

_DOCTOR_EXIT = """\
exit status: 0 nothing is wrong, or all is mended; 1 something is wrong, or couldn't be mended; 2 usage, or a file
can't be read; 130 interrupted; 141 standard output was closed early

docs/doctor.md lists all that can be found. With --json each file is one line."""


def _pace(text: str) -> float | None:
    if text == "max":
        return None
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither 'max' nor a factor above zero")
    return factor


def _add_sinks(parser: argparse.ArgumentParser) -> None:
    """The options that say where a stream goes."""
    parser.add_argument(
        "--ui",
        choices=("auto", "plain", "none"),
        default="auto",
        help="show the conversation (auto: plain, unless standard output carries data)",
    )
    parser.add_argument("--transcript", metavar="OUT.jsonl", help="write a transcript; refused if the file exists")
    parser.add_argument("--append", action="store_true", help="go on with an existing transcript")
    parser.add_argument(
        "--fsync", action="store_true", help="make each write of the transcript durable before it counts"
    )
    parser.add_argument("--metrics", choices=("table", "json", "none"), default="table", help="default: table")
    parser.add_argument("--metrics-file", metavar="FILE", help="write the metrics there instead")
    parser.add_argument(
        "--output",
        choices=("none", "items", "messages", "text"),
        default="none",
        help="what standard output carries: every item or the messages as NDJSON (settled), or the answers' text",
    )
    parser.add_argument(
        "--ids", choices=("random", "stable"), default="random", help="stable: the same input gives the same uuids"
    )
    parser.add_argument("--strict", action="store_true", help="end at the first event that breaks a rule")


def _rounds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a number of rounds: 1 or more")
    return int(text)


def _marks(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} isn't a number of cache marks: 0 or more")
    return int(text)


def _tokens(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a number of tokens: 1 or more")
    return int(text)


def _retries(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} isn't a number of retries: 0 or more")
    return int(text)


def _limit(text: str) -> float | None:
    if text == "off":
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither 'off' nor a number of seconds above zero")
    return seconds


def _add_failing(parser: argparse.ArgumentParser) -> None:
    """The options that say what happens when a request fails."""
    again = parser.add_mutually_exclusive_group()
    again.add_argument(
        "--retries", type=_retries, default=9, metavar="N", help="try so often again (default: %(default)s)"
    )
    again.add_argument(
        "--no-retry", dest="retries", action="store_const", const=0, help="don't try again (as --retries 0)"
    )
    limit: dict[str, Any] = {"type": _limit, "metavar": "SECONDS|off"}
    parser.add_argument(
        "--retry-time", **limit, default=600.0, help="begin no try later than this after the first failure (600)"
    )
    parser.add_argument("--fallback-model", metavar="MODEL", help="the model to ask when the other one can't answer")
    parser.add_argument(
        "--no-stream-fallback",
        dest="stream_fallback",
        action="store_false",
        help="don't ask once without streaming when streams fail",
    )
    parser.add_argument("--connect-timeout", **limit, default=10.0, help="until the connection is made (10)")
    parser.add_argument("--first-byte-timeout", **limit, default=300.0, help="until the answer begins (300)")
    parser.add_argument("--idle-timeout", **limit, default=90.0, help="between two bytes of it (90)")
    parser.add_argument("--progress-timeout", **limit, default=600.0, help="between two events but pings (600)")


def _command(commands: Any, name: str, summary: str, description: str, epilog: str) -> argparse.ArgumentParser:
    """A command whose description and epilog keep their lines."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=description,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="turnstream", description="The message system of a coding agent: streams in, messages out."
    )
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    replay = _command(commands, "replay", "play recorded streams into the sinks", _REPLAY_HELP, _REPLAY_EXIT)
    replay.add_argument(
        "files", nargs="+", metavar="FILE", help="a recorded stream or a transcript; - is standard input"
    )
    replay.add_argument(
        "--speed",
        type=_pace,
        default=None,
        metavar="max|FACTOR",
        help="max (default), or a factor of the recorded pace (recordings that hold times, transcripts)",
    )
    replay.add_argument(
        "--idle-timeout",
        type=_limit,
        default=None,
        metavar="SECONDS|off",
        help="of a pipe: give it up when so long no byte comes (default: off)",
    )
    _add_sinks(replay)
    send = _command(commands, "send", "send one request and stream its answer into the sinks", _SEND_HELP, _SEND_EXIT)
    send.add_argument("prompt", nargs="?", metavar="PROMPT", help="what to ask; - is standard input")
    send.add_argument(
        "--request", metavar="FILE.json", help="the body of a Messages API request instead; - is standard input"
    )
    send.add_argument(
        "--model", metavar="MODEL", help="with a PROMPT (default: $ANTHROPIC_MODEL, else claude-sonnet-4-5)"
    )
    send.add_argument("--max-tokens", type=_tokens, metavar="N", help="with a PROMPT (default: 4096)")
    send.add_argument("--system", metavar="TEXT", help="with a PROMPT: the system prompt")
    send.add_argument(
        "--base-url",
        default="https://api.anthropic.com",
        metavar="URL",
        help="the API, or a gateway (default: %(default)s)",
    )
    _add_failing(send)
    _add_sinks(send)
    bench = _command(commands, "bench", "measure how fast it is here, as ratios to a floor", _BENCH_HELP, _BENCH_EXIT)
    bench.add_argument(
        "--workload",
        default="A,B,C",
        metavar="A,B,C",
        help="which, of A, B, C, D, fractions such as B/4, growth, transcript and live (default: %(default)s)",
    )
    bench.add_argument("--peers", action="store_true", help="also what others use, as far as it is installed")
    bench.add_argument(
        "--rounds", type=_rounds, default=None, metavar="N", help="of each measurement (default: 5; --quick: 3)"
    )
    bench.add_argument("--quick", action="store_true", help="a tenth of the size, to see that it works")
    bench.add_argument("--json", action="store_true", help="JSON instead of tables")
    _add_serve(commands)
    _add_record(commands)
    _add_messages(commands)
    _add_sessions(commands)
    _add_doctor(commands)
    return parser


def _chunk(text: str) -> int | str:
    if text in ("event", "max"):
        return text
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is neither 'event', 'max' nor a number of bytes")
    return int(text)


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a port: 0 to 65535")
    return int(text)


def _add_serve(commands: Any) -> None:
    """The replay server."""
    serve = _command(
        commands,
        "serve",
        "serve recorded streams as the Messages API, with faults if you like",
        _SERVE_HELP,
        _SERVE_EXIT,
    )
    serve.add_argument(
        "recordings", nargs="+", metavar="RECORDING", help="a recorded stream, or a folder of .sse and .ndjson files"
    )
    serve.add_argument("--host", default="127.0.0.1", metavar="HOST", help="where to listen (default: %(default)s)")
    serve.add_argument("--port", type=_port, default=0, metavar="N", help="likewise; 0 (default) takes a free one")
    serve.add_argument(
        "--speed",
        type=_pace,
        default=None,
        metavar="max|FACTOR",
        help="max (default), or a factor of the recorded pace (recordings that hold times)",
    )
    serve.add_argument(
        "--chunk",
        type=_chunk,
        default="event",
        metavar="event|max|BYTES",
        help="what is written at a time: an event (default), as much as there is, or so many bytes",
    )
    serve.add_argument(
        "--fault",
        action="append",
        metavar="FAULT[,FAULT…]",
        help="what goes wrong; `;` (or the option again) parts faults that requests meet in turn",
    )
    serve.add_argument("--once", action="store_true", help="end when every recording was served")
    serve.add_argument("--quiet", action="store_true", help="no line on standard error for each request")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} isn't a number of seconds")
    return value


def _add_record(commands: Any) -> None:
    """The recording proxy."""
    record = _command(
        commands,
        "record",
        "record what clients of the Messages API get, as a proxy in front of it",
        _RECORD_HELP,
        _RECORD_EXIT,
    )
    record.add_argument("--upstream", required=True, metavar="URL", help="where requests go")
    record.add_argument("--dir", required=True, metavar="DIR", help="where recordings go; made if it isn't there")
    record.add_argument("--host", default="127.0.0.1", metavar="HOST", help="where to listen (default: %(default)s)")
    record.add_argument("--port", type=_port, default=0, metavar="N", help="likewise; 0 (default) takes a free one")
    record.add_argument(
        "--bodies",
        action="store_true",
        help="also keep requests (headers redacted, bodies as they are), with user messages in the transcripts",
    )
    record.add_argument(
        "--session-header",
        metavar="NAME",
        help="the request header that says which transcript an answer belongs to (default: one for the run)",
    )
    record.add_argument("--no-transcripts", action="store_true", help="recordings and figures only")
    record.add_argument("--pass-metrics", action="store_true", help="/metrics is the upstream's; /-/metrics stays")
    record.add_argument(
        "--grace",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="what open streams get at the end (default: %(default)g)",
    )
    record.add_argument("--quiet", action="store_true", help="no line on standard error for each request")


def _add_messages(commands: Any) -> None:
    """The commands that read messages."""
    normalize = _command(
        commands,
        "normalize",
        "print a conversation as the API takes it, or as a display shows it",
        _NORMALIZE_HELP,
        _NORMALIZE_EXIT,
    )
    normalize.add_argument("file", metavar="FILE", help="messages; - is standard input")
    normalize.add_argument(
        "--for", dest="purpose", choices=("api", "display"), required=True, help="what the messages are for"
    )
    # None where an option wasn't given: the rest goes with --for api only.
    api = normalize.add_argument_group("with --for api")
    api.add_argument("--dialect", choices=("anthropic", "bedrock"), help="whose rules (default: anthropic)")
    api.add_argument("--model", metavar="M", help="the model that the request goes to; thinking of others is dropped")
    api.add_argument("--thinking", action="store_true", default=None, help="the request will have thinking on")
    api.add_argument(
        "--tools", metavar="FILE.json", help="the request's tools: a list, or an object with `tools` (default: unknown)"
    )
    api.add_argument(
        "--prefill",
        choices=("refuse", "allow"),
        help="whether the last message may be the assistant's (default: refuse)",
    )
    api.add_argument(
        "--reserved-cache-marks", type=_marks, metavar="N", help="cache marks used outside of the messages (default: 0)"
    )
    api.add_argument("--refused", metavar="TEXT", help="why the API refused the request: what it names is stripped")
    api.add_argument(
        "--explain",
        action="store_const",
        const="text",
        help="tell each repair on standard error: `stage uuid what: why`; --explain=json: as NDJSON",
    )
    # An option with an optional value would swallow a FILE that follows it.
    api.add_argument("--explain=json", dest="explain", action="store_const", const="json", help=argparse.SUPPRESS)
    inspect = _command(commands, "inspect", "count what a file of messages holds", _INSPECT_HELP, _INSPECT_EXIT)
    inspect.add_argument("file", metavar="FILE", help="messages; - is standard input")
    inspect.add_argument("--json", action="store_true", help="JSON instead of text")
    commands.add_parser("schema", help="print the JSON Schema of messages", description=_SCHEMA_HELP)


def _age(text: str) -> float:
    """Seconds: ``30d``, ``12h``, ``2w``; a number alone is days."""
    number, unit = (text[:-1], text[-1]) if text[-1:].isalpha() else (text, "d")
    seconds = {"m": 60, "h": 3600, "d": 86400, "w": 604800}.get(unit.lower())
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if seconds is None or not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 30d, 12h or 2w")
    return value * seconds


def _bytes(text: str) -> int:
    """``500M``, ``2G``; a number alone is bytes."""
    bare = text.upper().removesuffix("B")
    number, unit = (bare[:-1], bare[-1]) if bare[-1:].isalpha() else (bare, "")
    factor = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}.get(unit)
    try:
        value = float(number)
    except ValueError:
        value = -1.0
    if factor is None or not 0 <= value < 1e18:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 500M or 2G")
    return int(value * factor)


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} isn't a number of sessions: 0 or more")
    return int(text)


def _add_sessions(commands: Any) -> None:
    """The commands that know sessions."""
    sessions = _command(
        commands, "sessions", "list the sessions below a root, or remove old ones", _SESSIONS_HELP, _SESSIONS_EXIT
    )
    sessions.add_argument("--root", metavar="DIR", help=_ROOT_HELP)
    sessions.add_argument("--project", metavar="DIR", help="only the sessions of this working folder")
    sessions.add_argument("--json", action="store_true", help="JSON instead of a table")
    prune = sessions.add_subparsers(dest="action", metavar="[prune]").add_parser(
        "prune",
        help="remove sessions by age, number or size, and what nobody needs any more",
        description=_PRUNE_HELP,
        epilog=_PRUNE_EXIT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    # What was given before `prune` stays.
    prune.add_argument("--root", metavar="DIR", default=argparse.SUPPRESS, help=_ROOT_HELP)
    prune.add_argument(
        "--project", metavar="DIR", default=argparse.SUPPRESS, help="only the sessions of this working folder"
    )
    prune.add_argument("--older-than", type=_age, metavar="AGE", help="last active longer ago: 30d, 12h, 2w")
    prune.add_argument("--keep", type=_count, metavar="N", help="the N last active ones stay, whatever else is said")
    prune.add_argument(
        "--max-size", type=_bytes, metavar="SIZE", help="the least active go until all take at most this: 500M, 2G"
    )
    prune.add_argument("--yes", action="store_true", help="remove it, instead of saying what would be removed")
    prune.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="JSON instead of text")
    show = _command(commands, "show", "show a session's conversation", _SHOW_HELP, _SHOW_EXIT)
    show.add_argument("session", metavar="SESSION|FILE", help="a session's uuid or its beginning, or a transcript")
    show.add_argument("--root", metavar="DIR", help=_ROOT_HELP)
    show.add_argument("--full", action="store_true", help="the full history, also before compactions")
    show.add_argument("--at", metavar="UUID", help="the branch that ends with this record")
    show.add_argument("--no-pager", dest="pager", action="store_false", help="print at once")
    fork = _command(commands, "fork", "copy a conversation up to a record into a new session", _FORK_HELP, _FORK_EXIT)
    fork.add_argument("session", metavar="SESSION|FILE", help="a session's uuid or its beginning, or a transcript")
    fork.add_argument("--at", required=True, metavar="UUID", help="the last record that is copied")
    fork.add_argument("--root", metavar="DIR", help=_ROOT_HELP)
    fork.add_argument("--title", metavar="TEXT", help="the new session's title (default: the old one, with `(fork)`)")
    fork.add_argument("--json", action="store_true", help="JSON instead of the path")


def _add_doctor(commands: Any) -> None:
    """The command that mends transcripts."""
    doctor = _command(
        commands, "doctor", "say what is wrong with transcripts, and mend them", _DOCTOR_HELP, _DOCTOR_EXIT
    )
    doctor.add_argument("files", nargs="+", metavar="FILE|FOLDER", help="a transcript, or a folder of them")
    doctor.add_argument("--fix", action="store_true", help="mend what is wrong")
    doctor.add_argument("--json", action="store_true", help="JSON instead of text")
