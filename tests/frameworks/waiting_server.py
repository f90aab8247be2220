"""Deep agents that wait for a person, behind ag-ui-langgraph's endpoint; their checkpoints are in a file.

The environment says where that is (`CHECKPOINTS`), and where spans go. `/nested`: the one who asks is two levels down.
`/two`: two of them ask at once.
"""

# The packages of the agent are not among those that this project is checked with.
# mypy: disable-error-code="import-not-found, untyped-decorator"

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiosqlite
from ag_ui_langgraph import LangGraphAgent, add_langgraph_fastapi_endpoint
from deepagents import create_deep_agent
from fastapi import FastAPI
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from agui_otel import TracingMiddleware, setup
from examples.langgraph_agent import ScriptedModel


class ByInterrupt(LangGraphAgent):  # type: ignore[misc]
    """An agent of which one interrupt of several can be answered: LangGraph takes answers by interrupt."""

    def _build_command_from_agui_resume(self, entries: list[Any], *, open_interrupts: Any = None) -> Command:
        del open_interrupts
        return Command(resume={entry.interrupt_id: entry.payload for entry in entries})


@tool
def send_email(to: str) -> str:
    """Send an email."""
    return f"sent to {to}"


def task(subagent: str, description: str) -> dict[str, Any]:
    """The arguments of a call that dispatches a subagent."""
    return {"subagent_type": subagent, "description": description}


def mailer() -> dict[str, Any]:
    """A subagent whose one tool call has to be approved."""
    model = ScriptedModel(tool_name="send_email", arguments=[{"to": "ann@x.test"}], answer="The mail is out.")
    return {
        "name": "mailer",
        "description": "Sends mails.",
        "system_prompt": "Send it.",
        "model": model,
        "tools": [send_email],
        "interrupt_on": {"send_email": True},
    }


def nested(checkpointer: Any) -> Any:
    """A supervisor with a lead, who has a mailer."""
    lead_model = ScriptedModel(tool_name="task", arguments=[task("mailer", "mail ann")], answer="The lead is done.")
    lead = create_deep_agent(model=lead_model, subagents=[mailer()], name="lead")
    model = ScriptedModel(tool_name="task", arguments=[task("lead", "see to it")], answer="All is done.")
    return create_deep_agent(
        model=model,
        subagents=[{"name": "lead", "description": "Leads.", "runnable": lead}],
        checkpointer=checkpointer,
    )


def two(checkpointer: Any) -> Any:
    """A supervisor with two mailers at work at once."""
    model = ScriptedModel(
        tool_name="task", arguments=[task("mailer", "mail ann"), task("mailer", "mail bob")], answer="All is done."
    )
    return create_deep_agent(model=model, subagents=[mailer()], checkpointer=checkpointer)


def traced() -> FastAPI:
    """Both behind the middleware, exporting where the environment says."""
    setup()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with aiosqlite.connect(os.environ["CHECKPOINTS"]) as connection:
            saver = AsyncSqliteSaver(connection)
            await saver.setup()
            for path, graph in (("/nested", nested(saver)), ("/two", two(saver))):
                agent = ByInterrupt(
                    name="supervisor", graph=graph, emit_raw_events=False, emit_interrupt_outcome=True,
                    subagent_visibility="attributed",
                )  # fmt: skip
                add_langgraph_fastapi_endpoint(app, agent, path)
            yield

    app = FastAPI(lifespan=lifespan)
    app.add_middleware(TracingMiddleware, agent_name="supervisor")
    return app
