"""Modules around a network that change how its output is read, or what it is given."""
