"""What the paper prints, to stand beside what was measured."""
