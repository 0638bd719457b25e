"""A leaderboard over many models, as a folder of pages that need no server."""
