"""Charts: functions that turn numbers into a `Drawing`. Each file is one kind of chart."""
