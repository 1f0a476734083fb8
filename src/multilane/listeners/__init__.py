"""How records are gathered for one call of the user's function, and what that function receives."""
