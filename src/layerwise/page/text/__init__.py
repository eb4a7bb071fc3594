"""How numbers, words, tables and escaped text are written, whatever the output."""
