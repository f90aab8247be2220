"""The demonstration's script: a planner and its subagents prepare a team's offsite, in two runs of one thread.

Nobody thinks here: what a model would say is written down. But the agents are as concurrent as real ones, and the
stream is one that AG-UI's reference client accepts.

    planner                      asks three scouts at once, then the booker
      flight-scout               asks the treasurer, who answers its tool call; writes /budget/spent
        treasurer
      hotel-scout                has the reviewer check its choice; writes /budget/spent too: an update is lost
        reviewer
      restaurant-scout           fails; the planner recovers
      booker                     waits for approval before it pays: the first run ends here
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

Event = dict[str, Any]

PLANNER = "planner"
START: dict[str, Any] = {"city": "Lisbon", "people": 8}
"""The state with which the thread begins."""
QUESTION = "Plan our offsite in Lisbon for eight: flights, a hotel, and a dinner on the first evening."
INTERRUPT = "deposit-approval"
APPROVAL = {"interruptId": INTERRUPT, "status": "resolved", "payload": {"approved": True}}
"""The resume entry with which the second run begins."""


class Agent:
    """One agent of the run: everything it says carries its tag. `pace` is a pause in seconds between its words."""

    def __init__(self, tag: str | None, pace: float) -> None:
        self._tag = tag
        self._pace = pace

    def says(self, kind: str, **fields: Any) -> Event:
        """Return one event of this agent."""
        tag = {} if self._tag is None else {"subagentRunId": self._tag}
        return {"type": kind, **tag, **fields}

    async def writes(self, message: str, text: str) -> AsyncIterator[Event]:
        """A text message, word by word."""
        yield self.says("TEXT_MESSAGE_START", messageId=message, role="assistant")
        async for word in self._words(text):
            yield self.says("TEXT_MESSAGE_CONTENT", messageId=message, delta=word)
        yield self.says("TEXT_MESSAGE_END", messageId=message)

    async def thinks(self, message: str, text: str) -> AsyncIterator[Event]:
        """Reasoning, word by word."""
        yield self.says("REASONING_START", messageId=message)
        yield self.says("REASONING_MESSAGE_START", messageId=message, role="reasoning")
        async for word in self._words(text):
            yield self.says("REASONING_MESSAGE_CONTENT", messageId=message, delta=word)
        yield self.says("REASONING_MESSAGE_END", messageId=message)
        yield self.says("REASONING_END", messageId=message)

    async def calls(self, call: str, tool: str, **arguments: Any) -> AsyncIterator[Event]:
        """A tool call, its arguments in pieces."""
        yield self.says("TOOL_CALL_START", toolCallId=call, toolCallName=tool)
        async for piece in self._words(json.dumps(arguments, ensure_ascii=False)):
            yield self.says("TOOL_CALL_ARGS", toolCallId=call, delta=piece)
        yield self.says("TOOL_CALL_END", toolCallId=call)

    def answers(self, call: str, content: str) -> Event:
        """The result of a tool call."""
        return self.says("TOOL_CALL_RESULT", messageId=f"{call}-result", toolCallId=call, content=content)

    def starts(self, name: str, description: str, call: str, parent: str | None = None) -> Event:
        """The beginning of this subagent, dispatched by the tool call `call`."""
        above = {} if parent is None else {"parentSubagentRunId": parent}
        return self.says("SUBAGENT_STARTED", name=name, description=description, parentToolCallId=call, **above)

    def ends(self, result: str) -> Event:
        """The successful end of this subagent."""
        return self.says("SUBAGENT_FINISHED", result=result)

    def sets(self, path: str, value: Any) -> Event:
        """A state update of one path."""
        return self.says("STATE_DELTA", delta=[{"op": "add", "path": path, "value": value}])

    async def rests(self, times: float = 1) -> None:
        """Take a little time, as a tool would."""
        await asyncio.sleep(self._pace * times)

    async def _words(self, text: str) -> AsyncIterator[str]:
        words = text.split(" ")
        for word in words[:-1]:
            await self.rests()
            yield word + " "
        await self.rests()
        yield words[-1]


class Conversation:
    """Both runs of the thread `thread`, to be played once. `pace` is the pause between two words, in seconds."""

    def __init__(self, thread: str, *, pace: float = 0.02) -> None:
        self.thread = thread
        self._pace = pace
        self._planner = Agent(None, pace)
        self._flights_wrote = asyncio.Event()
        self._hotels_wrote = asyncio.Event()

    def input(self, number: int, *, state: Any, resume: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """Return the RunAgentInput of the run with this number."""
        given = {
            "threadId": self.thread,
            "runId": f"{self.thread}-run-{number}",
            "state": state,
            "messages": [{"id": "question", "role": "user", "content": QUESTION}],
            "tools": [],
            "context": [],
            "forwardedProps": {},
        }
        return given if resume is None else {**given, "resume": resume}

    async def first_run(self, given: dict[str, Any]) -> AsyncIterator[Event]:
        """The first run: three scouts at once, a failure, and a question that only a person can answer."""
        planner = self._planner
        yield _started(given)
        yield planner.says("STATE_SNAPSHOT", snapshot={**given["state"], "budget": {"total": 9000, "spent": 0}})
        yield planner.says("STEP_STARTED", stepName="delegate")
        async for event in planner.writes("plan", "I will ask three scouts at once."):
            yield event
        for call, task in (
            ("call-flights", "flights for eight"),
            ("call-hotel", "a quiet hotel"),
            ("call-dinner", "a dinner on the first evening"),
        ):
            async for event in planner.calls(call, "delegate", task=task):
                yield event
        async for event in _together(self._flights(), self._hotel(), self._dinner()):
            yield event
        yield planner.answers("call-flights", "TAP, 08:15, 2400 EUR for eight.")
        yield planner.answers("call-hotel", "Hotel Graça, 4800 EUR for eight and three nights.")
        yield planner.says("STEP_FINISHED", stepName="delegate")
        async for event in planner.writes("recovery", "No restaurant answered, so I take the one of last year."):
            yield event
        async for event in planner.calls("call-last-year", "read_notes", query="dinner Lisbon"):
            yield event
        await planner.rests(3)
        yield planner.answers("call-last-year", "Taberna da Rua, 20:00, seats eight.")
        yield planner.sets("/dinner", "Taberna da Rua")
        async for event in planner.calls("call-booking", "delegate", task="book the hotel"):
            yield event
        async for event in self._booker_asks():
            yield event
        yield _finished(
            given,
            usage=[_usage("gpt-4.1", 2310, 188, 1024), _usage("gpt-4.1-mini", 5120, 402, 0)],
            outcome={"type": "interrupt", "interrupts": [self._interrupt()]},
        )

    async def second_run(self, given: dict[str, Any]) -> AsyncIterator[Event]:
        """The second run: the deposit was approved, and the booker goes on where it was."""
        planner = self._planner
        booker = Agent("booker-1", self._pace)
        yield _started(given)
        yield booker.starts("booker", "Books what was chosen.", "call-booking")
        await booker.rests(3)
        yield booker.answers("call-deposit", "Paid. Confirmation HG-2291.")
        yield booker.sets("/hotel/confirmation", "HG-2291")
        async for event in booker.writes("booked", "The hotel is booked."):
            yield event
        yield booker.ends("Booked, confirmation HG-2291.")
        yield planner.answers("call-booking", "Booked, confirmation HG-2291.")
        async for event in planner.writes(
            "answer", "All set: TAP at 08:15, Hotel Graça (HG-2291), dinner at Taberna da Rua."
        ):
            yield event
        yield _finished(given, usage=[_usage("gpt-4.1", 1480, 96, 1024), _usage("gpt-4.1-mini", 620, 41, 0)])

    async def _flights(self) -> AsyncIterator[Event]:
        scout = Agent("flights-1", self._pace)
        treasurer = Agent("treasurer-1", self._pace)
        yield scout.starts("flight-scout", "Finds flights.", "call-flights")
        async for event in scout.thinks("flights-thought", "Eight seats, one morning departure."):
            yield event
        async for event in scout.calls("call-search", "search_flights", to="LIS", seats=8):
            yield event
        await scout.rests(5)
        yield scout.answers("call-search", "TAP 08:15 300 EUR, LH 11:40 340 EUR")
        async for event in scout.calls("call-treasurer", "ask_treasurer", amount=2400):
            yield event
        yield treasurer.starts("treasurer", "Guards the budget.", "call-treasurer", "flights-1")
        async for event in treasurer.writes("treasurer-view", "2400 of 9000 is fine."):
            yield event
        yield treasurer.answers("call-treasurer", "Approved.")
        yield treasurer.ends("Approved.")
        yield scout.sets("/flight", "TAP 08:15")
        yield scout.sets("/budget/spent", 2400)
        self._flights_wrote.set()
        await self._hotels_wrote.wait()
        async for event in scout.writes("flights-report", "TAP at 08:15 for 2400 EUR."):
            yield event
        yield scout.ends("TAP, 08:15, 2400 EUR for eight.")

    async def _hotel(self) -> AsyncIterator[Event]:
        scout = Agent("hotel-1", self._pace)
        reviewer = Agent("reviewer-1", self._pace)
        yield scout.starts("hotel-scout", "Finds a hotel.", "call-hotel")
        async for event in scout.calls("call-review", "ask_reviewer", hotel="Hotel Graça"):
            yield event
        yield reviewer.starts("reviewer", "Reads what guests say.", "call-review", "hotel-1")
        async for event in reviewer.calls("call-reviews", "read_reviews", hotel="Hotel Graça"):
            yield event
        await reviewer.rests(8)
        yield reviewer.answers("call-reviews", "4.6 of 5, quiet, breakfast praised")
        async for event in reviewer.writes("review", "Quiet and well kept: take it."):
            yield event
        yield reviewer.ends("Take it.")
        yield scout.answers("call-review", "Take it.")
        await self._flights_wrote.wait()
        yield scout.sets("/hotel", {"name": "Hotel Graça", "nights": 3})
        yield scout.sets("/budget/spent", 4800)
        self._hotels_wrote.set()
        yield scout.ends("Hotel Graça, 4800 EUR for eight and three nights.")

    async def _dinner(self) -> AsyncIterator[Event]:
        scout = Agent("dinner-1", self._pace)
        yield scout.starts("restaurant-scout", "Finds a restaurant.", "call-dinner")
        async for event in scout.writes("dinner-plan", "Looking for a table for eight."):
            yield event
        await scout.rests(10)
        yield scout.says("SUBAGENT_ERROR", message="tables.example did not answer in 5 s", code="upstream_timeout")

    async def _booker_asks(self) -> AsyncIterator[Event]:
        booker = Agent("booker-1", self._pace)
        yield booker.starts("booker", "Books what was chosen.", "call-booking")
        async for event in booker.calls("call-deposit", "pay_deposit", hotel="Hotel Graça", euro=480):
            yield event
        yield booker.says("SUBAGENT_FINISHED", outcome={"type": "suspended", "interruptIds": [INTERRUPT]})

    def _interrupt(self) -> dict[str, Any]:
        return {
            "id": INTERRUPT,
            "reason": "approval",
            "message": "Pay a deposit of 480 EUR to Hotel Graça?",
            "toolCallId": "call-deposit",
            "subagentRunId": "booker-1",
        }


def _started(given: dict[str, Any]) -> Event:
    return {
        "type": "RUN_STARTED",
        "threadId": given["threadId"],
        "runId": given["runId"],
        "protocolVersion": "1.0",
    }


def _finished(given: dict[str, Any], **fields: Any) -> Event:
    return {"type": "RUN_FINISHED", "threadId": given["threadId"], "runId": given["runId"], **fields}


def _usage(model: str, input_tokens: int, output_tokens: int, cached: int) -> dict[str, Any]:
    return {
        "provider": "openai",
        "model": model,
        "inputTokens": input_tokens,
        "outputTokens": output_tokens,
        "totalTokens": input_tokens + output_tokens,
        "cachedInputTokens": cached,
    }


async def _together(*agents: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """The events of agents that work at the same time, as they come."""
    events: asyncio.Queue[Event | None] = asyncio.Queue()

    async def work(agent: AsyncIterator[Event]) -> None:
        try:
            async for event in agent:
                await events.put(event)
        finally:
            await events.put(None)

    tasks = [asyncio.ensure_future(work(agent)) for agent in agents]
    try:
        for _ in agents:
            while (event := await events.get()) is not None:
                yield event
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
