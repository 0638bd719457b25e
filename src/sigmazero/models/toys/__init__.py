"""Problems small enough to hold in the hand, for trials without downloads."""
