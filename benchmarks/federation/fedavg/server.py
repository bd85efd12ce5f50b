"""The server of Flower's FedAvg, with the seconds after each round."""

import json
import time
import tomllib
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()
TOLD = tomllib.loads((Path(__file__).parent.parent / "settings.toml").read_text())


@app.main()
def main(grid: Grid, context: Context) -> None:
    agents, out = int(context.run_config["agents"]), Path(str(context.run_config["out"]))
    while len(list(grid.get_node_ids())) < agents:
        time.sleep(0.2)
    seconds: list[float] = []

    def after(round: int, arrays: ArrayRecord) -> MetricRecord:
        seconds.append(time.monotonic())
        return MetricRecord({"round": round})

    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=agents, min_available_nodes=agents)
    result = strategy.start(grid, ArrayRecord([np.zeros(int(TOLD["dim"]))]), int(TOLD["rounds"]), evaluate_fn=after)
    theta = result.arrays.to_numpy_ndarrays()[0]
    out.mkdir(parents=True, exist_ok=True)
    told = {"theta": theta.tolist(), "seconds": [b - a for a, b in zip(seconds, seconds[1:])]}
    (out / "unfinished.json").write_text(json.dumps(told))
    (out / "unfinished.json").rename(out / "fedavg.json")
