"""Each exchange of a federation twice: with the agents, and with nodes that do nothing, with the same bytes."""

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid, ServerApp

from fedsa.federation import Reply, serve
from fedsa.flower import FlowerCarrier

app = ServerApp()


class Both:
    """Exchanges of fedsa, each followed by one with nodes that do nothing."""

    def __init__(self, grid: Grid) -> None:
        self.grid, self.carrier = grid, FlowerCarrier(grid)
        self.rows: list[dict[str, float]] = []
        self.ended = time.perf_counter()
        self.reachable = self.carrier.reachable

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        server = time.perf_counter() - self.ended
        # Flower looks for messages at times of its own: neither kind of exchange may begin at a time that the other one has set.
        time.sleep(random.random())
        began = time.perf_counter()
        replies = self.carrier.exchange(messages, deadline)
        ended = time.perf_counter()
        up = max((len(reply.body or b"") for reply in replies.values()), default=0)
        row = {"server": server, "fedsa": ended - began, "echo": self.echo(messages, up), "up": up}
        self.rows.append({**row, "down": max(map(len, messages.values()))})
        self.ended = time.perf_counter()
        return replies

    def echo(self, messages: Mapping[str, bytes], up: int) -> float:
        """The seconds in which Flower pushes these bytes, and pulls `up` bytes of each node."""
        time.sleep(random.random())
        began = time.monotonic()
        records = {who: RecordDict({"fedsa": ConfigRecord({"body": body, "bytes": up})}) for who, body in messages.items()}
        sent = [Message(record, dst_node_id=int(who), message_type="query.echo") for who, record in records.items()]
        waiting = set(self.grid.push_messages(sent))
        while waiting:
            waiting -= {message.metadata.reply_to_message_id for message in self.grid.pull_messages(list(waiting))}
            if waiting:
                time.sleep(self.carrier.pause(began))
        return time.monotonic() - began


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, both = context.run_config, Both(grid)
    agents, out = int(config["agents"]), Path(str(config["out"]))
    serve(Path(__file__).parent.parent / "settings.toml", both, agents=agents, out=out, report=lambda line: print(line, flush=True))
    (out / "unfinished.json").write_text(json.dumps(both.rows))
    (out / "unfinished.json").rename(out / "overhead.json")
