"""Payloads with schemas: how they are described and framed, the registries that have the schemas, and the readers."""
