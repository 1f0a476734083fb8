"""Audit records: writing them, and checking that every record of a group has one."""
