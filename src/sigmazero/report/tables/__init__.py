"""The figures of a store as tables: for the terminal, Markdown, CSV and LaTeX."""
