"""Tables: rows of named columns."""
