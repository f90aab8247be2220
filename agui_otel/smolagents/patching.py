"""Putting hooks around what a class or a module has, and taking them away exactly.

A hook is a function around the original. Where somebody else has put another one around ours meanwhile, ours stays
inside, inert, and is the same one when it is wanted again: nothing is ever hooked twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from types import FunctionType
from typing import Any

from agui_otel.tracing.forking import renewed

Make = Callable[[Any], Any]

_MAX_LAYERS = 100


class Hook:
    """One attribute of `owner`, with `make(original)` around it while it is put.

    Raises ImportError where `owner` has no such attribute of its own: another version of what is hooked.
    """

    def __init__(self, owner: Any, name: str, make: Make) -> None:
        if name not in vars(owner):
            raise ImportError(f"{owner.__name__} has no {name} of its own: this version of it is not known here")
        self._owner = owner
        self._name = name
        self._make = make
        self._original: Any = None
        self._ours: Any = None

    def put(self) -> None:
        """Put the hook around what is there, unless it is in there already."""
        there = vars(self._owner)[self._name]
        if self._ours is None or self._ours not in _layers(there):
            self._original = there
            self._ours = self._make(self._callable(there))
            setattr(self._owner, self._name, self._ours)

    def _callable(self, there: Any) -> Any:
        """What is there, to be called with the instance first: in a class another's hook may be a descriptor.

        wrapt's are, and say that they are functions.
        """
        if type(there) is FunctionType or not isinstance(self._owner, type):
            return there

        @wraps(there)
        def bound(instance: Any, *args: Any, **kwargs: Any) -> Any:
            return there.__get__(instance, type(instance))(*args, **kwargs)

        return bound

    def take(self) -> None:
        """Put the original back, where nothing stands around the hook."""
        if vars(self._owner)[self._name] is self._ours:
            setattr(self._owner, self._name, self._original)
            self._ours = self._original = None


def _layers(found: Any) -> Iterator[Any]:
    """A function, and what it says that it wraps."""
    for _ in range(_MAX_LAYERS):
        if found is None:
            return
        yield found
        found = getattr(found, "__wrapped__", None)


class Hooks:
    """Hooks that are there while anybody wants them. Safe to use from any thread."""

    def __init__(self, hooks: list[Hook]) -> None:
        self._hooks = hooks
        self._lock = renewed(self, "_lock", threading.Lock)
        self._wanted = 0

    def acquire(self) -> None:
        """Somebody wants them. What another's uninstalling has taken away meanwhile is put again."""
        with self._lock:
            for hook in self._hooks:
                hook.put()
            self._wanted += 1

    def release(self) -> None:
        """Somebody has no more use for them."""
        with self._lock:
            self._wanted -= 1
            if self._wanted == 0:
                for hook in self._hooks:
                    hook.take()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wanted while entered."""
        self.acquire()
        try:
            yield
        finally:
            self.release()
