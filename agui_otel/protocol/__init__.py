"""What AG-UI is: events in, transitions out. No OpenTelemetry, no I/O, no clock."""
