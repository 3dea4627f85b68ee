"""The answers that may still change: the last N, found by (message id, request id)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice

from turnstream.sinks.metrics.answer import Answer

__all__ = ["Window"]


class Window:
    """The last ``limit`` answers; older ones are handed to ``fold`` and forgotten.

    An answer whose stream may still speak of it (``held``) stays, so there can be a few more.
    """

    def __init__(self, limit: int, fold: Callable[[Answer], None]) -> None:
        self._limit = limit
        self._fold = fold
        self._answers: deque[Answer] = deque()
        self._by_key: dict[tuple[str, str], Answer] = {}
        self._latest: dict[str, Answer] = {}
        self.folded = 0

    def __iter__(self) -> Iterator[Answer]:
        return iter(self._answers)

    def __len__(self) -> int:
        return len(self._answers)

    def add(self, answer: Answer) -> None:
        """Append ``answer``; makes room."""
        answers = self._answers
        answers.append(answer)
        name = answer.message_id
        if name is not None:
            self._latest[name] = answer
            if answer.request_id is not None:
                self._by_key[name, answer.request_id] = answer
        while len(answers) > self._limit:
            if not answers[0].held:
                self._let_go(answers.popleft())
            elif not self._drop_oldest_idle():
                break

    def _drop_oldest_idle(self) -> bool:
        for position, answer in enumerate(self._answers):
            if not answer.held:
                if position == len(self._answers) - 1:
                    return False  # the one just added
                del self._answers[position]
                self._let_go(answer)
                return True
        return False

    def _let_go(self, answer: Answer) -> None:
        name = answer.message_id
        if name is not None:
            if answer.request_id is None and self._latest.get(name) is answer:
                del self._latest[name]  # as most are
            else:
                self._forget(answer)
        if not answer.streamed:
            answer.release()
        self.folded += 1
        self._fold(answer)

    def _forget(self, answer: Answer) -> None:
        name = answer.message_id
        if name is None:
            return
        if self._latest.get(name) is answer:
            del self._latest[name]
        if answer.request_id is not None:
            self._by_key.pop((name, answer.request_id), None)

    def newest(self, limit: int) -> Iterator[Answer]:
        """The last ``limit`` answers, the newest first."""
        return islice(reversed(self._answers), limit)

    def latest(self, message_id: str) -> Answer | None:
        """The newest answer with this message id."""
        return self._latest.get(message_id)

    def find(self, message_id: str, request_id: str | None) -> Answer | None:
        """The answer a message belongs to.

        (message id, request id) decide; the message id alone where either side has no request id
        (FAULTS.md 29). An answer found so takes the request id.
        """
        latest = self._latest.get(message_id)
        if request_id is None:
            return latest
        found = self._by_key.get((message_id, request_id))
        if found is None and latest is not None and latest.request_id is None:
            found = latest
            self.name_request(found, request_id)
        return found

    def name_request(self, answer: Answer, request_id: str) -> None:
        """``answer``'s request id became known."""
        answer.request_id = request_id
        if answer.message_id is not None:
            self._by_key[answer.message_id, request_id] = answer

    def unname(self, answer: Answer) -> None:
        """``answer`` has no message id after all: what it had was made up."""
        self._forget(answer)
        answer.message_id = None
