"""Streams that come again: the same thread and run, seen before (trace model: streams that come again).

A client attaches again to a run whose stream it lost, a `connect` sends a run's history once more, and some producers
give two runs the same ids. What tells them apart is stated: whether the run that was seen had ended, and the ids that
it opened. A run that opens none of them is another run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from agui_otel.protocol.thread import SeenRun, ThreadRecord
from agui_otel.protocol.transitions import Met

if TYPE_CHECKING:
    from agui_otel.protocol.scope import Scope

MAX_MARKS = 32
"""Ids that are remembered of one run: the first that it opened."""


_GOES_ON = frozenset(
    {
        "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END", "REASONING_MESSAGE_CONTENT", "REASONING_MESSAGE_END",
        "REASONING_END", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT", "STEP_FINISHED",
        "SUBAGENT_FINISHED", "SUBAGENT_ERROR", "RUN_FINISHED",
    }
)  # fmt: skip
"""Events that continue or end what another one has begun."""


def marks_of(idents: Iterable[str]) -> tuple[str, ...]:
    """Short hashes of ids, which are opaque: eight hexadecimal digits each."""
    return tuple(hashlib.blake2b(ident.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest() for ident in idents)


def meet(scope: Scope, at: int) -> None:
    """The run's id is known: was there such a run in this thread? One that broke off goes on here."""
    run = scope.run
    earlier = scope.seen.get(run.id)
    if earlier is None or scope.earlier is not None:
        return
    scope.earlier = earlier
    if earlier.cut_off:
        scope.record = _with_what_was_open(scope.record, earlier, run.thread_id or "")
        run.goes_on = True
        scope.out.append(Met(run, "continued", earlier.span, at))
    elif scope.answered or scope.answered_calls or (run.input is not None and run.input.answers):
        _another_run(scope, earlier, at)
    else:
        scope.undecided = True


def opens_without_start(scope: Scope, kind: str, at: int) -> None:
    """The first event of a run is no RUN_STARTED: is it one that presupposes others?"""
    scope.unstarted = scope.run.implicit = True
    scope.run.in_midst |= kind in _GOES_ON
    meet(scope, at)


def decide(scope: Scope, ident: str, at: int) -> None:
    """The run opens the first entities, or raises the first interrupt, after its id was found to be known."""
    earlier, record, run = scope.earlier, scope.record, scope.run
    assert earlier is not None
    if run.input is None and record is not None and (ident in record.subagents or ident in record.tool_calls):
        return  # what waits may be re-emitted, or go on after an answer that nobody told us
    if marks_of((ident,))[0] in earlier.marks:
        scope.undecided = False
        run.replayed = True
        scope.out.append(Met(run, "replayed", earlier.span, at))
    else:
        _another_run(scope, earlier, at)


def settle(scope: Scope, at: int) -> None:
    """The run ends: one that opened nothing is not known to be the one that was seen."""
    if scope.undecided and scope.earlier is not None:
        _another_run(scope, scope.earlier, at)


def _another_run(scope: Scope, earlier: SeenRun, at: int) -> None:
    scope.undecided = False
    scope.out.append(Met(scope.run, "repeated", earlier.span, at))
    scope.note("repeated_run", f"another run of this thread had the id {scope.run.id!r}", at)


def _with_what_was_open(record: ThreadRecord | None, earlier: SeenRun, thread_id: str) -> ThreadRecord:
    """What is remembered, and besides it what was open when the stream of `earlier` broke off."""
    known = ThreadRecord(thread_id=thread_id, updated=earlier.at) if record is None else record
    return known.model_copy(
        update={
            "subagents": {**{each.id: each for each in earlier.subagents}, **known.subagents},
            "tool_calls": {**{each.id: each for each in earlier.tool_calls}, **known.tool_calls},
        }
    )
