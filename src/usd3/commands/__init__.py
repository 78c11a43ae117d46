"""What each subcommand of `usd3` does: its options, a dataclass, and a function that takes them."""
