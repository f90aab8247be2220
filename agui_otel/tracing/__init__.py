"""What OpenTelemetry is: transitions to spans, span events, links and metrics."""
