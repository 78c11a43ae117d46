"""The program `usd3`, also as `python -m usd3`."""

import sys

from usd3._internal.interrupts import exit_on_interrupt
from usd3._internal.processes import end_with_parent

__all__ = ["main"]


def main() -> int:
    """Run the command line; its import takes a moment, in which Ctrl-C works too."""
    exit_on_interrupt()
    from usd3.cli.main import main

    return main()


if __name__ == "__main__":
    end_with_parent()
    sys.exit(main())
