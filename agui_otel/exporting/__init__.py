"""Exporting: the providers and exporters of a process that has none, made by one call of `setup`."""

from agui_otel.exporting.handle import Handle, current_handle, handle_for
from agui_otel.exporting.providers import nobody_provides, setup, setup_where_nobody_did

__all__ = ["Handle", "current_handle", "handle_for", "nobody_provides", "setup", "setup_where_nobody_did"]
