"""The node of Flower's FedAvg: it loads its rows for a message, and trains on them."""

import tomllib
from pathlib import Path

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from app.training import train

app = ClientApp()
TOLD = tomllib.loads((Path(__file__).parent.parent / "settings.toml").read_text())


@app.train()
def fit(message: Message, context: Context) -> Message:
    agent = int(context.node_config.get("agent", context.node_config.get("partition-id")))
    data = np.load(str(context.run_config["data"]).replace("{agent}", str(agent)))
    theta = message.content["arrays"].to_numpy_ndarrays()[0]
    round = int(message.content["config"]["server-round"])
    trained = train(data, theta, TOLD, round, agent)
    records = {"arrays": ArrayRecord([trained]), "metrics": MetricRecord({"num-examples": int(data["rows"])})}
    return Message(RecordDict(records), reply_to=message)
