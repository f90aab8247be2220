"""The errors that agui-otel raises to its caller: while it is configured, and on the command line's input.

Nothing is raised into the program whose stream is observed.
"""

from __future__ import annotations


class AguiOtelError(Exception):
    """Base class of every error that this package raises on purpose."""


class ConfigurationError(AguiOtelError, ValueError):
    """A setting, an environment variable or an argument of `setup` cannot be used.

    The message names the variable or argument, its value and what is allowed.
    """


class InputError(AguiOtelError):
    """A recording cannot be read as an AG-UI stream.

    `path` names the file (`-` for standard input) and `line` its 1-based line, or None where no line
    applies. `str(error)` is `path:line: reason`.
    """

    def __init__(self, reason: str, *, path: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.path = path
        self.line = line

    def __str__(self) -> str:
        place = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{place}: {self.args[0]}"
