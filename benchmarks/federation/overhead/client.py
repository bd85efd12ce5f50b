"""A node that answers with its agent, or with as many bytes and nothing else, by the message."""

import os
import time
from pathlib import Path

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()
SETTINGS = Path(__file__).parent.parent / "settings.toml"


@app.query("echo")
def echo(message: Message, context: Context) -> Message:
    # Flower carries equal contents once.
    body = os.urandom(int(message.content["fedsa"]["bytes"]))
    return Message(RecordDict({"fedsa": ConfigRecord({"body": body})}), reply_to=message)


@app.query()
def agent(message: Message, context: Context) -> Message:
    began = time.perf_counter()
    # What a process for a message imports for fedsa, besides what Flower needs, is part of its seconds.
    from fedsa.flower import answer

    reply = answer(SETTINGS, message, context)
    with open(Path(str(context.run_config["out"]) + ".nodes"), "a") as file:
        file.write(f"{time.perf_counter() - began}\n")
    return reply
