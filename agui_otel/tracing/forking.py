"""Locks of the process, renewed in a forked child: a thread that had one when the host forked is not there to give it.

What the locks guard is whole at any moment, but for a step that its thread had not taken yet.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

Lock = TypeVar("Lock")

_holders: weakref.WeakKeyDictionary[Any, dict[str, Callable[[], object]]] = weakref.WeakKeyDictionary()


def renewed(holder: object, name: str, make: Callable[[], Lock]) -> Lock:
    """A lock for the attribute `name` of `holder`, an object or a module: a forked child gets another one there."""
    _holders.setdefault(holder, {})[name] = make
    return make()


def _renew_all() -> None:
    for holder, locks in list(_holders.items()):
        for name, make in locks.items():
            setattr(holder, name, make())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
