"""Serve the `app` of a module, traced: `python -m tests.frameworks.middleware MODULE --port N`."""

from __future__ import annotations

import argparse
import importlib

import uvicorn

from agui_otel import TracingMiddleware, setup


def main() -> None:
    """Export where the environment says, and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("--port", type=int, required=True)
    arguments = parser.parse_args()
    setup()
    app = importlib.import_module(arguments.module).app
    app.add_middleware(TracingMiddleware)
    uvicorn.run(app, port=arguments.port)


if __name__ == "__main__":
    main()
