"""The figures of a store as pictures."""
