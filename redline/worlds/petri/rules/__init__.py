"""Timed Petri nets: cluster tools, job shops and PNML files on one engine. Read net, tables, state, kernel."""
