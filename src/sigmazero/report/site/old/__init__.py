"""The pages that the leaderboard is still made with; they go with its rebuild."""
