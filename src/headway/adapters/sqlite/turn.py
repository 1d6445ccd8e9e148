"""Whose turn it is to write, within one process."""

from __future__ import annotations

import threading


class Turn:
    """A lock for two kinds of holders: the writer, which commits for everybody, and handlers' own transactions.

    The two alternate while both wait, so that a queue of handlers' transactions cannot keep the leases of all others
    from being renewed, and a busy writer cannot keep a handler out.
    """

    WRITER = 0
    HANDLER = 1

    def __init__(self) -> None:
        """Nobody's turn yet."""
        self._change = threading.Condition()
        self._waiting = [0, 0]
        self._held = False
        self._last = Turn.HANDLER

    def take(self, kind: int) -> None:
        """Wait for a turn and take it."""
        with self._change:
            self._waiting[kind] += 1
            self._change.wait_for(lambda: not self._held and (self._last != kind or not self._waiting[1 - kind]))
            self._waiting[kind] -= 1
            self._held, self._last = True, kind

    def pass_on(self) -> None:
        """End a turn; any thread may do it."""
        with self._change:
            self._held = False
            self._change.notify_all()
