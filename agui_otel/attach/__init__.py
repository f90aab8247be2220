"""The ways in: each takes events or bytes, hands them to a session, and passes the original on."""
