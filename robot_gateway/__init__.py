"""The edge: HTTP and WebSocket for robots and submitters, and the Python SDK."""
