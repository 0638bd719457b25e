"""Engines: where the units of a plan are computed. One file each, behind one small interface."""
