"""Helpers that tests share: the genuine broker, the proxy, examples."""
