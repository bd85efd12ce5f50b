"""The node: it answers with its agent."""

from pathlib import Path

from fedsa.flower import client_app

app = client_app(Path(__file__).parent.parent / "settings.toml")
