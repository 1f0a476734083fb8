"""What `/readyz` and `/livez` say about a running application.

Thread: any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multilane.app.app import App


def unready(app: App, now: float) -> list[str]:
    """Why the run is not ready; empty when every consumer has joined its group."""
    if app.progress is None:
        return ["the run has not begun"]
    return app.progress.liveness.unready(app.consumers, now)


def stalled(app: App, now: float) -> list[str]:
    """Why the run should be restarted; empty while it makes progress."""
    if app.progress is None:
        return []
    configs = [app.registration(name).config for name in app.consumers]
    paused = {name for name, facts in app.progress.facts().items() if facts["paused"]}
    paused |= {config.name for config in configs if app.overrides.of(config.name).is_paused}
    longest = {config.name: config.max_processing_time for config in configs}
    return app.progress.liveness.stalled(longest, paused, now)
