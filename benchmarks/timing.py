"""Ratios within one run: each candidate is timed in turn, many times, and the best of each is kept.

The best of many short rounds is what a noisy machine disturbs least; interleaving makes both sides share its moods.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def best(rounds: int, *candidates: Callable[[], object]) -> list[float]:
    """The shortest time of each candidate, in seconds, over so many interleaved rounds after two to warm up."""
    shortest = [float("inf")] * len(candidates)
    for number in range(rounds + 2):
        for index, candidate in enumerate(candidates):
            gc.collect()
            gc.disable()
            started = time.perf_counter()
            candidate()
            elapsed = time.perf_counter() - started
            gc.enable()
            if number >= 2:
                shortest[index] = min(shortest[index], elapsed)
    return shortest


def report(what: str, ratio: float, target: str, detail: str) -> None:
    """One line of a benchmark's result."""
    print(f"{what:58} {ratio:6.2f}   ({target}; {detail})")
