"""What stops the host's code, as opposed to what fails in it."""

from __future__ import annotations

from asyncio import CancelledError

STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit, CancelledError)
"""Passed on where a callable of the host's raises it. All else is that callable's failure, also what is no
``Exception``: a panic in an extension module is none."""
