"""Worlds: a folder for each simulator, and the only place where one is known by name. `registry` finds them."""
