"""Workflow search: which repair order defends best?"""

KIND = "workflow search"
"""What the config of a search's run folder calls it."""
