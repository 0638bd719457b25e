"""How an attack is run: sessions, searches, recorded steps, number formats, verification."""
