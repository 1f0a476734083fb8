"""Judging whether every record that a group read has an account: what is looked at, and what is said of it."""
