"""The sessions below a root: their list, retention, forks (WIRE.md §3)."""

from turnstream.sinks.transcript.sessions.fork import fork_session
from turnstream.sinks.transcript.sessions.info import Problem, SessionInfo
from turnstream.sinks.transcript.sessions.listing import find_session, list_sessions
from turnstream.sinks.transcript.sessions.places import default_index, default_root
from turnstream.sinks.transcript.sessions.prune import PruneReport, Removal, prune

__all__ = [
    "Problem",
    "PruneReport",
    "Removal",
    "SessionInfo",
    "default_index",
    "default_root",
    "find_session",
    "fork_session",
    "list_sessions",
    "prune",
]
