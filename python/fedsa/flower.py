"""Federations on Flower: its SuperLink carries the bytes, and fedsa's ends do the rest.

``fedsa federation new DIR`` writes an app of a few lines around :func:`client_app` and :func:`server_app`, with the commands for certificates,
nodes and a run in its README. Needs ``pip install 'fedsa[flower]'``.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from fedsa._carrier import Reply
from fedsa.errors import FedsaError, InputError

if TYPE_CHECKING:
    from fedsa._agent import Agent
    from fedsa._files import Path
    from fedsa._resident import Resident

__all__ = ["FlowerCarrier", "client_app", "server_app"]

# The record of a message, and its fields.
RECORD, BODY, REFUSED = "fedsa", "body", "refused"

# The settings of the server that a run may have, with hyphens there.
WAITING = ("connect", "deadline", "least_answers", "least_share", "repeats", "missing", "norm_limit", "width_limit", "leave_after", "invite")

# The agents of this process with their data, by settings and folder of the state, the last one used last: a process of a simulation answers for
# many nodes in turn. More would take the memory of many agents' data.
_AGENTS: dict[tuple[str, ...], Agent] = {}
MAX_AGENTS = 16

# The seconds for which a message waits until another process has answered for the same node: a question may be repeated before it is answered.
BUSY = 600.0


class FlowerCarrier:
    """Messages on Flower's SuperLink, with a loop of its own, which does not wait between looks as :meth:`Grid.send_and_receive` does.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The grid of the run.
    look : float
        The most seconds between two looks for answers. It looks more often at first: answers of nodes in the server's process come in milliseconds.
    late : float
        The seconds after its deadline for which an answer may still come (:meth:`late`); 0 for none.
    """

    def __init__(self, grid: Grid, look: float = 0.05, late: float = 0.0) -> None:
        self.grid, self.look, self._late = grid, look, late
        # Of earlier exchanges: whose answer is awaited, and until when.
        self._awaited: dict[str, tuple[str, float]] = {}

    def reachable(self) -> Collection[str]:
        """Return the numbers of the nodes that are there, which Flower has authenticated where its SuperLink demands it."""
        return [str(node) for node in self.grid.get_node_ids()]

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        """Carry messages to nodes, and return what came back until the deadline, or until a node is gone."""
        ttl = max(deadline - time.monotonic(), 1.0) + self._late
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
                # Errors come from the SuperLink itself; answers of others than whom they were asked of do not count.
                if who is not None and (message.has_error() or who == str(message.metadata.src_node_id)):
                    replies[who] = reply_of(message)
            if waiting:
                time.sleep(self.pause(began))
        if self._late > 0:
            self._awaited.update((id, (who, deadline + self._late)) for id, who in waiting.items())
        return replies

    def pause(self, began: float) -> float:
        """Return the seconds until the next look for answers, which have been awaited since this time of :func:`time.monotonic`."""
        return min(self.look, max(0.002, 0.1 * (time.monotonic() - began)))

    def late(self) -> Sequence[tuple[str, bytes]]:
        """Return the answers to earlier messages that have come since, each with the node that sent it."""
        self._awaited = {id: one for id, one in self._awaited.items() if one[1] > time.monotonic()}
        answers = []
        for message in self.grid.pull_messages(list(self._awaited)) if self._awaited else ():
            who, _ = self._awaited.pop(message.metadata.reply_to_message_id, (None, 0.0))
            if who is not None and not message.has_error() and who == str(message.metadata.src_node_id):
                body = reply_of(message).body
                if body is not None:
                    answers.append((who, body))
        return answers


def reply_of(message: Message) -> Reply:
    """What a node has answered."""
    if message.has_error():
        return Reply(lost=f"Flower: {message.error.reason or f'error {message.error.code}'}")
    record = message.content.get(RECORD)
    if not isinstance(record, ConfigRecord):
        return Reply(refused="a reply without the record of fedsa")
    body, refused = record.get(BODY), record.get(REFUSED)
    wire = len(record.deflate()) if hasattr(record, "deflate") else 0
    return Reply(body if isinstance(body, bytes) else None, str(refused) if refused is not None else None, wire_bytes=wire)


def client_app(settings: Path) -> ClientApp:
    """Make the app of the nodes.

    Parameters
    ----------
    settings : path
        The settings that all ends have: an experiment file with one method and one seed, without data.

    Returns
    -------
    flwr.clientapp.ClientApp
        It answers the server by the node's configuration: ``socket``, where a resident ``fedsa agent`` listens; or ``data``, the
        files of this agent (several with ``;`` between them), ``state``, the folder for its state, and ``agent``, its number. With
        ``leave=true`` the agent leaves for good.
    """
    app = ClientApp()

    @app.query()  # type: ignore[untyped-decorator]
    def query(message: Message, context: Context) -> Message:
        return answer(settings, message, context)

    return app


def answer(settings: Path, message: Message, context: Context) -> Message:
    """The answer of a node to a message of the server: that of its agent, or why the agent refuses it."""
    fields: dict[str, Any] = {}
    try:
        body = message.content[RECORD][BODY]
        if not isinstance(body, bytes):
            raise InputError("a message without bytes", "message.refused", BODY)
        with agent_of(settings, dict(context.node_config), dict(context.run_config), context.node_id) as agent:
            got = agent.handle(body)
        fields = {} if got is None else {BODY: got}
    except FedsaError as e:
        fields = {REFUSED: str(e)}
    return Message(RecordDict({RECORD: ConfigRecord(fields)}), reply_to=message)


@contextmanager
def agent_of(settings: Path, node: Mapping[str, Any], run: Mapping[str, Any], node_id: int) -> Iterator[Agent | Resident]:
    """The agent of a node, whose state no other process has meanwhile.

    What it needs is imported here: Flower starts a process for each message, whose time is part of the exchange.
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
    # States of other settings, and of other nodes of this machine, stay apart.
    state = state.replace("{node}", str(node_id)).replace("{settings}", hashlib.sha256(read(settings)).hexdigest()[:16])
    key = (os.fspath(settings), data, state, str(number))
    kept = os.path.join(state, "agent.state")
    agent = _AGENTS.pop(key, None)
    if agent is None or not os.path.exists(kept):
        agent = Agent(settings, [one for one in data.split(";") if one], state=state, number=None if number is None else int(number), wait=BUSY)
        if node.get("leave"):
            agent.leave()
    try:
        # What another process has done since is on the disk.
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
        As of :func:`client_app`.

    Returns
    -------
    flwr.serverapp.ServerApp
        It has its settings from the configuration of a run: ``agents``, the least number of them, ``most-agents``, ``out``, the folder of
        the results, and ``overwrite``; ``late``, the seconds after the deadline for which answers may still come; and those of the table
        ``[federation]``, of which the others are as ``settings.toml`` says: ``connect``, ``deadline``, ``least-answers``, ``least-share``,
        ``repeats``, ``missing``, ``norm-limit``, ``width-limit``, ``leave-after``, ``invite``.
    """
    from fedsa._deployed import serve

    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        config = context.run_config
        most = config.get("most-agents")
        waiting: dict[str, Any] = {key: config[key.replace("_", "-")] for key in WAITING if key.replace("_", "-") in config}
        results = serve(
            settings,
            FlowerCarrier(grid, late=float(config.get("late", 0.0))),
            agents=int(config.get("agents", 1)),
            most=None if most is None else int(most),
            out=str(config.get("out", "out")),
            overwrite=bool(config.get("overwrite", False)),
            report=lambda line: print(line, flush=True),
            **waiting,
        )
        print(results.summary(), flush=True)

    return app
