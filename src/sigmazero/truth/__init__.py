"""How near the truth is: proofs that fewer changes cannot fool a network."""
