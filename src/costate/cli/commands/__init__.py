"""The commands of the command line, one to a file: its arguments, and what it does with them."""
