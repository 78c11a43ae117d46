"""Text, as characters, bytes or pieces of words."""
