"""The table of commands."""

from usd3.cli.commands import COMMANDS


def test_the_overview_says_what_the_options_say():
    for command in COMMANDS.values():
        assert command.summary == command.options.__doc__.strip().partition("\n")[0]
