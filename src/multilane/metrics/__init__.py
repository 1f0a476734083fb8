"""Metrics: their definitions, who receives them, and exporters."""
