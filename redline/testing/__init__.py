"""What every compiled world promises, as tests to inherit: an author's own are three lines.

from redline.testing import WorldContract

class TestLift(WorldContract):
    names = ("world:lift:WORLD", "world:lift:WORLD?rate=0.1")
"""

from redline.testing.contract import WorldContract

__all__ = ["WorldContract"]
