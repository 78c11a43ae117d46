"""Boards of symbols, such as Sudoku."""
