"""The training-time profiler: where the time of a run goes, and what would make it faster."""
