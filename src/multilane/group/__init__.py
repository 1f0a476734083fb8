"""Consumer groups seen from outside: what they have done, how fast, and who stands still."""
