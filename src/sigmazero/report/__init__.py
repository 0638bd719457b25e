"""Rows in, tables and pictures out: nothing here runs a model or an attack."""
