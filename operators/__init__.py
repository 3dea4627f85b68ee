"""Stages and operators: Observable → Observable, no I/O."""

from turnstream.operators.accumulate import NormalizeBlock, accumulate
from turnstream.operators.aws import decode_aws
from turnstream.operators.batch import Batch, StreamKey
from turnstream.operators.bridge import batched, coalesce, each
from turnstream.operators.decode import decode
from turnstream.operators.events import parse_events
from turnstream.operators.failures import as_exception, is_retryable
from turnstream.operators.ndjson import decode_ndjson
from turnstream.operators.outcomes import AnswerOutcome, OutcomeTracker, answer_outcomes
from turnstream.operators.settle import settle
from turnstream.operators.sse import ServerSentEvent, decode_sse
from turnstream.operators.stage import Fault, Operator, Stage, lift, run_batches, run_stages

__all__ = [
    "AnswerOutcome",
    "Batch",
    "Fault",
    "NormalizeBlock",
    "Operator",
    "OutcomeTracker",
    "ServerSentEvent",
    "Stage",
    "StreamKey",
    "accumulate",
    "answer_outcomes",
    "as_exception",
    "batched",
    "coalesce",
    "decode",
    "decode_aws",
    "decode_ndjson",
    "decode_sse",
    "each",
    "is_retryable",
    "lift",
    "parse_events",
    "run_batches",
    "run_stages",
    "settle",
]
