"""Prints what `python script arguments` would have set."""

import os
import sys

from neighbour import GREETING  # which lies beside this file

if __name__ == "__main__":
    print(sys.argv)
    print(__file__ == os.path.abspath(sys.argv[0]), sys.path[0] == os.path.dirname(__file__))
    print(GREETING, sys.modules["__main__"].__dict__ is globals(), "annotations" in globals())
