"""The server: it leads the rounds and writes the results."""

from pathlib import Path

from fedsa.flower import server_app

app = server_app(Path(__file__).parent.parent / "settings.toml")
