"""The attack of Brendel and Bethge, its starting points and the problem that each step solves."""
