"""Keep a leaderboard as a folder: cards of models, and for each sample the sparsest point found; experimental."""

from sigmazero.board.change import add, submit
from sigmazero.board.check import verify
from sigmazero.board.folder import Leaderboard
from sigmazero.board.pages import write_board
from sigmazero.board.prove import prove

__all__ = ["Leaderboard", "add", "prove", "submit", "verify", "write_board"]
