"""A policy without weights: what it does follows from what it sees, in whatever process and company."""

from redline.testing.scripted import Scripted, columns

__all__ = ["Scripted", "columns"]
