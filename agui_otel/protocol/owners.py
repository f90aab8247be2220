"""Who owns what is open: the part of the rules that messages, tool calls and reasoning have in common.

An owner is the subagent that an entity belongs to, None being the run's own agent. It is what the opener's
tag said, and it outlives the end of the entity: an id keeps its owner for the whole run, one owner per kind
of entity. An absent tag agrees with every owner; any other tag must name it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

Event = dict[str, Any]
Owners = dict[str, "str | None"]


class Breach(NamedTuple):
    """A rule that an event broke, and how. The message names types, names and ids, never content."""

    rule: str
    message: str


def owner_name(owner: str | None) -> str:
    """An owner in words, for messages."""
    return "the run's own agent" if owner is None else f"subagent '{owner}'"


def mismatch(event: Event, noun: str, ident: str, owner: str | None) -> Breach | None:
    """The breach where `event` is tagged, and not with `owner`."""
    tag = event.get("subagentRunId")
    if tag is None or tag == owner:
        return None
    message = f"{event['type']} is tagged '{tag}', but {noun} '{ident}' belongs to {owner_name(owner)}"
    return Breach("owner_mismatch", message)


class Entities:
    """The entities of one kind that are opened, continued and ended: which are open, and who owns each.

    Its rules are named after the noun: `tool_call_already_open` and `tool_call_not_open` for "tool call". Two
    kinds may share a map of owners, as a span of reasoning and the messages in it do.
    """

    __slots__ = ("id_field", "noun", "open", "owners")

    def __init__(self, noun: str, id_field: str, owners: Owners) -> None:
        self.noun = noun
        self.id_field = id_field
        self.open: set[str] = set()
        self.owners = owners

    def start(self, event: Event) -> Breach | None:
        """Open an entity; its first opener owns it."""
        ident = event[self.id_field]
        if ident in self.open:
            return self._breach(event, ident, "already_open", "is already open")
        self.open.add(ident)
        tag = event.get("subagentRunId")
        owner = self.owners.setdefault(ident, tag)
        return None if tag is None or owner == tag else mismatch(event, self.noun, ident, owner)

    def proceed(self, event: Event) -> Breach | None:
        """Continue an entity; one that is not open is opened."""
        ident = event[self.id_field]
        tag = event.get("subagentRunId")
        if ident not in self.open:
            self.open.add(ident)
            self.owners.setdefault(ident, tag)
            return self._breach(event, ident, "not_open", "is not open")
        if tag is None:
            return None
        owner = self.owners.get(ident, tag)
        return None if owner == tag else mismatch(event, self.noun, ident, owner)

    def end(self, event: Event) -> Breach | None:
        """Continue an entity for the last time."""
        breach = self.proceed(event)
        self.open.discard(event[self.id_field])
        return breach

    def _breach(self, event: Event, ident: str, rule: str, state: str) -> Breach:
        return Breach(f"{self.noun.replace(' ', '_')}_{rule}", f"{event['type']}: {self.noun} '{ident}' {state}")
