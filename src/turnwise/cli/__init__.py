"""The command line: one thin file a command, heavy imports after parsing."""
