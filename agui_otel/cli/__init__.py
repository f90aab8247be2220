"""The command line `agui-otel`: recordings and a demonstration, seen as span trees."""
