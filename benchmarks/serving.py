"""What the middleware and the proxy cost a server of many streams, against the same without them.

    python -m benchmarks.serving [ROUNDS]

Real processes and sockets; traces go to an OTLP receiver that throws them away. Each round asks each side in turn, and
the medians of the rounds' ratios count.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from statistics import median

from benchmarks.load import Measured, Server, agent, measure, proxy, receiver
from benchmarks.timing import report

STREAMS = 100
SPREAD = 1.0
"""Seconds over which paced streams begin; the others begin at once."""
PACED = "/paced/200"
"""A message of 200 words, in four seconds."""


def rounds(number: int, path: str, streams: int, *servers: Server) -> list[list[Measured]]:
    """So many interleaved rounds, after one to warm up; for each server its rounds."""
    measured: list[list[Measured]] = [[] for _ in servers]
    for count in range(number + 1):
        for server, kept in zip(servers, measured, strict=True):
            found = measure(server, path, streams, SPREAD if path == PACED else 0.0)
            if count:
                kept.append(found)
    return measured


def ratio(observed: list[Measured], bare: list[Measured], figure: Callable[[Measured], float]) -> float:
    """The median of the rounds' ratios of a figure."""
    return median(figure(one) / figure(other) for one, other in zip(observed, bare, strict=True))


def middleware(number: int, to: str) -> None:
    """The middleware against the bare application."""
    with agent("bare", to) as without, agent("middleware", to) as with_it:
        bare, traced = rounds(number, PACED, STREAMS, without, with_it)
        detail = f"{median(one.rate for one in bare):.0f} events/s bare"
        report("paced, middleware / bare: events per second", ratio(traced, bare, lambda m: m.rate), ">= 0.95", detail)
        report(
            "paced, middleware / bare: median time to first byte",
            ratio(traced, bare, lambda m: m.first_byte), "<= 1.05",
            f"{median(one.first_byte for one in bare) * 1000:.1f} ms bare",
        )  # fmt: skip
        cpu = f"{median(one.cpu for one in bare) * 1e6:.0f} µs an event bare"
        report("paced, middleware / bare: processor time", ratio(traced, bare, lambda m: m.cpu), "<= 1.3", cpu)
        for path, streams, spans in (("/burst/1000", 20, 0.0), ("/nested", 50, 25 / 189)):
            bare, traced = rounds(number, path, streams, without, with_it)
            added = median(one.cpu - other.cpu for one, other in zip(traced, bare, strict=True))
            a_span = f", {added / spans * 1e6:.0f} µs a span" if spans else ""
            detail = f"{median(one.cpu for one in bare) * 1e6:.0f} µs an event bare, {added * 1e6:.1f} µs added{a_span}"
            report(f"saturated {path}, middleware / bare: events per second",
                   ratio(traced, bare, lambda m: m.rate), "reported", detail)  # fmt: skip


def proxied(number: int, to: str) -> None:
    """The proxy against itself with tracing off."""
    with (
        agent("bare", to) as upstream,
        proxy(upstream, to, traced=False) as off,
        proxy(upstream, to, traced=True) as on,
    ):
        plain, traced = rounds(number, PACED, STREAMS, off, on)
        detail = (
            f"{median(one.rate for one in plain):.0f} events/s off, processor time "
            f"{median(one.cpu for one in plain) * 1e6:.0f} µs an event off, {ratio(traced, plain, lambda m: m.cpu):.2f}"
            " of that on"
        )
        report("paced, proxy / with tracing off: events per second",
               ratio(traced, plain, lambda m: m.rate), ">= 0.9", detail)  # fmt: skip


def main() -> None:
    """Measure all."""
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with receiver() as received:
        middleware(number, received)
        proxied(number, received)


if __name__ == "__main__":
    main()
