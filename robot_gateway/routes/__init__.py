"""The HTTP paths, by what they are about."""
