"""The HTTP paths of FORMATS H, by what they are about."""
