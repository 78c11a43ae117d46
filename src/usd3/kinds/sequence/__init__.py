"""Sequences of letters, such as DNA and proteins."""
