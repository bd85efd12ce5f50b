"""Federations on Flower, whose SuperLink carries the messages.

``fedsa federation new DIR`` writes an app around :func:`client_app` and :func:`server_app`. Its README has the commands for certificates,
nodes and a run. Needs ``pip install 'fedsa[flower]'``.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedsa._carrier import Reply
from fedsa.errors import FedsaError, InputError, MachineError

if TYPE_CHECKING:
    from fedsa._agent import Agent
    from fedsa._files import Path
    from fedsa._resident import Resident

__all__ = ["FlowerCarrier", "client_app", "server_app"]

# The name of a message's record, and of its fields.
RECORD, BODY, REFUSED, LOST = "fedsa", "body", "refused", "lost"

# Cache of agents with their data, least recently used first: in simulations one process answers for many nodes. The size limits the memory.
_AGENTS: dict[tuple[str, ...], Agent] = {}
MAX_AGENTS = 16

# Seconds for which a message waits while another process answers for the same node: the server may repeat a question before its answer.
BUSY = 600.0


class FlowerCarrier:
    """A carrier on Flower's SuperLink. It polls more often than :meth:`Grid.send_and_receive`.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The grid of the run.
    look : float
        The longest pause between polls in seconds. The first pauses are shorter, because local nodes answer within milliseconds.
    """

    def __init__(self, grid: Grid, look: float = 0.05) -> None:
        self.grid, self.look = grid, look

    def reachable(self) -> Collection[str]:
        """Return the ids of the connected nodes. Flower authenticates them if its SuperLink is set up so."""
        return [str(node) for node in self.grid.get_node_ids()]

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        """Send messages to nodes; return the replies that arrive by the deadline. A lost node ends the wait for it."""
        ttl = max(deadline - time.monotonic(), 1.0)
        sent = [
            Message(RecordDict({RECORD: ConfigRecord({BODY: body})}), dst_node_id=int(who), message_type="query", ttl=ttl)
            for who, body in messages.items()
        ]
        began = time.monotonic()
        waiting = {id: who for id, who in zip(self.grid.push_messages(sent), messages) if id}
        replies: dict[str, Reply] = {}
        while waiting and time.monotonic() < deadline:
            for message in self.grid.pull_messages(list(waiting)):
                who = waiting.pop(message.metadata.reply_to_message_id, None)
                # Errors come from the SuperLink itself. Answers must come from the node that was asked.
                if who is not None and (message.has_error() or who == str(message.metadata.src_node_id)):
                    replies[who] = reply_of(message)
            if waiting:
                time.sleep(self.pause(began))
        return replies

    def pause(self, began: float) -> float:
        """Return the seconds until the next poll of an exchange that began at this time of :func:`time.monotonic`."""
        return min(self.look, max(0.002, 0.1 * (time.monotonic() - began)))


def reply_of(message: Message) -> Reply:
    """Convert a node's message to a reply."""
    if message.has_error():
        return Reply(lost=f"Flower: {message.error.reason or f'error {message.error.code}'}")
    record = message.content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        return Reply(refused="a reply without the record of fedsa")
    body, refused, lost = record.get(BODY), record.get(REFUSED), record.get(LOST)
    if lost is not None:
        return Reply(lost=str(lost))
    wire = len(record.deflate()) if hasattr(record, "deflate") else 0
    return Reply(body if isinstance(body, bytes) else None, str(refused) if refused is not None else None, wire_bytes=wire)


def client_app(settings: Path) -> ClientApp:
    """Make the app of the nodes.

    Parameters
    ----------
    settings : path
        The shared settings: an experiment file with one method and one seed, without data.

    Returns
    -------
    flwr.clientapp.ClientApp
        The app reads these keys of the node's configuration:

        - ``socket``: the socket of a resident ``fedsa agent``; the other keys are then ignored
        - ``data``: the agent's files, separated by ``;``
        - ``state``: the folder of the state; by default below ``~/.local/state/fedsa``
        - ``rules``: the agent's disclosure rules, a TOML file; by default the profile ``datashield``
        - ``agent``: the agent's number; by default Flower's ``partition-id``, if any
        - ``leave``: if true, the agent leaves for good
    """
    app = ClientApp()

    @app.query()  # type: ignore[untyped-decorator]
    def query(message: Message, context: Context) -> Message:
        return answer(settings, message, context)

    return app


def answer(settings: Path, message: Message, context: Context) -> Message:
    """A node's reply to a message of the server."""
    return Message(RecordDict({RECORD: answered(settings, message.content, context)}), reply_to=message)


def answered(settings: Path, content: RecordDict, context: Context) -> ConfigRecord:
    """The record of a reply: the agent's answer, or why the agent refuses the message or could not get it."""
    try:
        body = content[RECORD][BODY]
        if not isinstance(body, bytes):
            raise InputError("a message without bytes", "refused-message", BODY)
        with agent_of(settings, dict(context.node_config), dict(context.run_config), context.node_id) as agent:
            got = agent.handle(body)
        return ConfigRecord({} if got is None else {BODY: got})
    except FedsaError as e:
        # The whole text may quote cells and name files: it stays in the log of this node.
        print(f"fedsa: {e}", file=sys.stderr)
        # The agent has refused nothing that it has not read.
        return ConfigRecord({LOST if isinstance(e, MachineError) else REFUSED: for_others(e)})


def for_others(e: FedsaError) -> str:
    """What the server may read of an error."""
    from fedsa import _fedsa

    return _fedsa.for_others(e.code, e.key, e.what, e.help)


@contextmanager
def agent_of(settings: Path, node: Mapping[str, Any], run: Mapping[str, Any], node_id: int) -> Iterator[Agent | Resident]:
    """The agent of a node, with its state locked.

    Imports are local, because Flower starts a process for each message, and its start-up time is part of the exchange.
    """
    if "socket" in node:
        from fedsa._resident import Resident

        yield Resident(str(node["socket"]))
        return
    from fedsa._agent import Agent
    from fedsa._files import read

    number = node.get("agent", node.get("partition-id"))
    data = str(node.get("data", run.get("data", ""))).replace("{agent}", str(number))
    state = os.path.expanduser(str(node.get("state", run.get("state", "~/.local/state/fedsa/{settings}/{node}"))))
    # One folder for each settings file and each node of this machine.
    state = state.replace("{node}", str(node_id)).replace("{settings}", hashlib.sha256(read(settings)).hexdigest()[:16])
    # Rules belong to the node: the configuration of a run cannot set them.
    rules = node.get("rules")
    key = (os.fspath(settings), data, state, str(number), str(rules))
    kept = os.path.join(state, "agent.state")
    agent = _AGENTS.pop(key, None)
    if agent is None or not os.path.exists(kept):
        files, place = [one for one in data.split(";") if one], None if number is None else int(number)
        agent = Agent(settings, files, state=state, number=place, rules=None if rules is None else str(rules), wait=BUSY)
        if node.get("leave"):
            agent.leave()
    try:
        # Another process may have saved a newer state.
        agent.catch_up()
        _AGENTS[key] = agent
        while len(_AGENTS) > MAX_AGENTS:
            _AGENTS.pop(next(iter(_AGENTS)))
        yield agent
    finally:
        agent.release()


def server_app(settings: Path) -> ServerApp:
    """Make the app of the server.

    Parameters
    ----------
    settings : path
        As in :func:`client_app`.

    Returns
    -------
    flwr.serverapp.ServerApp
        The app, whose settings are those of the table ``[federation]``.
    """
    from fedsa._deployed import serve

    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        results = serve(settings, FlowerCarrier(grid), report=lambda line: print(line, flush=True))
        print(results.summary(), flush=True)

    return app
