"""What an attack is made of: the question, the oracle, the contract, the mathematics, the result."""
