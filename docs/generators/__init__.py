"""What writes the reference pages: one module for each part of the surface that the pages describe."""
