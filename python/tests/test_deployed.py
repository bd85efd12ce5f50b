"""Federations whose agents have data of their own: the numbers of a run on the data of all, however often ends are stopped."""

from __future__ import annotations

import hashlib
import json
import math
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from needs import NO_RULES

import fedsa
from fedsa import federation
from fedsa.federation import Agent, Reply

LOGS = '[problem]\nkind = "logs"\nfeatures = { kind = "fourier", order = 2 }\ngamma = 0.9\n'
ROWS = '[problem]\nkind = "logistic"\ntarget = "y"\nridge = 1e-3\nintercept = true\nweighting = "rows"\n'


def settings(problem: str, method: str, sampling: str, rounds: int) -> str:
    return f'id = "t"\ntitle = "t"\n{problem}[sampling]\nkind = "{sampling}"\n[[method]]\nlabel = "m"\n{method}\n[run]\nrounds = {rounds}\nseeds = [5]\n'


SCAFFLSA = settings(LOGS, 'kind = "scafflsa"\nstep_size = 0.1\nlocal_steps = 5', "iid", 5)
CASES = [
    SCAFFLSA,
    settings(LOGS, 'kind = "fedlsa"\nstep_size = 0.1\nlocal_steps = 5\nparticipants = 2', "markov", 5),
    settings(LOGS, 'kind = "fedhsa"\nstep_size = 0.5\nlocal_steps = 5', "mean", 4),
    settings(LOGS, 'kind = "lstd"', "mean", 1),
    settings(ROWS, 'kind = "newton"', "mean", 4),
    settings(ROWS, 'kind = "fib-shed"', "mean", 6),
]


def data(folder: Path, text: str, agents: int = 3) -> list[str]:
    """Files of agents."""
    names = []
    for agent in range(agents):
        if 'kind = "logs"' in text:
            lines = ["s_0,s_1,reward,next_0,next_1,done"]
            state = lambda i, a=agent: (math.sin(0.37 * i) + 0.3 * a, math.cos(0.11 * i) * (1 + 0.2 * a))  # noqa: E731
            for i in range(40 + 15 * agent):
                (x, y), (u, v) = state(i), state(i + 1)
                lines.append(f"{x},{y},{x * y},{u},{v},{int(i % 20 == 19)}")
        else:
            lines = ["a,b,y"]
            for i in range(30 + 10 * agent):
                x, y = math.sin(0.7 * i + agent), math.cos(1.3 * i)
                lines.append(f"{x},{y},{int(x + 0.5 * y + 0.3 * math.sin(2.9 * i) > 0)}")
        path = folder / f"agent_{agent}.csv"
        path.write_text("\n".join(lines) + "\n")
        names.append(str(path))
    return names


def engine(text: str, files: list[str]) -> fedsa.Results:
    set_: dict[str, Any] = {"problem.path": files} if 'kind = "logs"' in text else {"problem.data": files, "problem.partition": "files"}
    return fedsa.Experiment.from_text(text, set=set_).run()


class Here:
    """Agents of this process, each made anew from its state for every message."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder, self.settings = folder, folder / "settings.toml"
        self.settings.write_text(text)
        self.files = data(folder, text)
        self.names = ["carol", "alice", "bob"]
        self.exchanges = 0

    def reachable(self) -> Collection[str]:
        return self.names

    def agent(self, name: str) -> Agent:
        number = self.names.index(name)
        return Agent(self.settings, self.files[number], state=self.folder / name, number=number, rules=NO_RULES)

    def one(self, name: str, message: bytes) -> Reply | None:
        try:
            return Reply(self.agent(name).handle(message))
        except fedsa.InputError as e:
            return Reply(refused=str(e))

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        self.exchanges += 1
        replies = {name: self.one(name, message) for name, message in messages.items()}
        return {name: reply for name, reply in replies.items() if reply is not None}


def serve(here: Here, **more: Any) -> fedsa.Results:
    return federation.serve(here.settings, here, out=here.folder / "out", **{"agents": 3, "deadline": 5.0, **more})


@pytest.mark.parametrize("text", CASES)
def test_the_bits_are_those_of_a_run_on_all_data(tmp_path: Path, text: str) -> None:
    here = Here(tmp_path, text)
    lines: list[str] = []
    results, expected = serve(here, report=lines.append), engine(text, here.files)
    assert np.array_equal(results.theta("m"), expected.theta("m")) and np.abs(results.theta("m")).max() > 0.0
    for count in ("bits_up", "bits_down", "exchanges", "vectors_up"):
        assert results.cost("m")[count] == expected.cost("m")[count], count
    assert any("3 of 3 answered" in line or "2 of 2 answered" in line for line in lines)
    told = json.loads((tmp_path / "out/summary.json").read_text())["federation"]
    assert [agent["name"] for agent in told["agents"]] == here.names and len(told["exchanges"]) > 0
    # The files are those of any run.
    read = fedsa.open(tmp_path / "out")
    assert np.array_equal(read.theta("m"), results.theta("m")) and read.plot(x="bits_up").svg.startswith("<svg")
    assert not (tmp_path / "out.state/server.state").exists()
    with pytest.raises(fedsa.InputError, match="holds results"):
        serve(here)


class Stopping(Here):
    """Stops the server once, before or after an exchange is carried."""

    def __init__(self, folder: Path, text: str, at: int, after: bool) -> None:
        super().__init__(folder, text)
        self.at, self.after = at, after

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        stops = self.exchanges == self.at
        if stops and not self.after:
            self.at = -1
            raise KeyboardInterrupt
        replies = super().exchange(messages, deadline)
        if stops:
            self.at = -1
            raise KeyboardInterrupt
        return replies


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("at", range(8))
def test_a_server_that_is_stopped_at_any_time_goes_on(tmp_path: Path, at: int, after: bool) -> None:
    text = CASES[2]
    here = Stopping(tmp_path, text, at, after)
    with pytest.raises(KeyboardInterrupt):
        serve(here)
    results = serve(here)
    assert np.array_equal(results.theta("m"), engine(text, here.files).theta("m"))


TARGET = settings(ROWS, 'kind = "adaptive-newton"', "mean", 40).replace("[run]", "[run]\nstop = { residual = 1e-8 }")


@pytest.mark.parametrize("at", [None, 4, 9])
def test_a_target_is_reached_in_the_round_of_one_process(tmp_path: Path, at: int | None) -> None:
    """The method asks about trial points: the residual of the iterate is known only where a trial has become it, also after a restart."""
    here = Here(tmp_path, TARGET) if at is None else Stopping(tmp_path, TARGET, at, after=True)
    if at is not None:
        with pytest.raises(KeyboardInterrupt):
            serve(here)
    results, expected = serve(here), engine(TARGET, here.files)
    assert np.array_equal(results.theta("m"), expected.theta("m"))
    assert results.outcomes["m"].name == expected.outcomes["m"].name == "converged"
    assert results.cost("m")["exchanges"] == expected.cost("m")["exchanges"]


class Away(Here):
    """One agent is away for two rounds."""

    def reachable(self) -> Collection[str]:
        return [name for name in self.names if name != "bob" or not 4 < self.exchanges <= 6]


def test_the_weight_of_an_agent_that_is_away_is_recorded(tmp_path: Path) -> None:
    lines: list[str] = []
    serve(Away(tmp_path, SCAFFLSA), report=lines.append)
    told = json.loads((tmp_path / "out/summary.json").read_text())["federation"]
    (bob,) = [agent["weight"] for agent in told["agents"] if agent["name"] == "bob"]
    missing = [one["missing"] for one in told["exchanges"]]
    assert missing.count(0.0) == 3 and [one for one in missing if one] == pytest.approx([bob, bob])
    assert sum(f"2 of 2 answered, without bob, {bob:.1%} of the weight missing" in line for line in lines) == 2
    assert told["missing_weight"] == pytest.approx(missing) and [one["silent"] for one in told["exchanges"] if one["missing"]] == [["bob"], ["bob"]]
    read = fedsa.open(tmp_path / "out")
    assert read.outcomes["m"].name == "incomplete" and sum(read.trace()["missing_weight"][1:]) == pytest.approx(2 * bob)


class Losing(Here):
    """Loses every seventh answer once: the agent has answered."""

    def one(self, name: str, message: bytes) -> Reply | None:
        reply = super().one(name, message)
        self.count = getattr(self, "count", 0) + 1
        return Reply(lost="the line broke") if self.count % 7 == 0 else reply


def test_lost_answers_are_asked_again(tmp_path: Path) -> None:
    here = Losing(tmp_path, SCAFFLSA)
    lines: list[str] = []
    results = serve(here, least_answers=3, report=lines.append)
    assert np.array_equal(results.theta("m"), engine(SCAFFLSA, here.files).theta("m"))
    assert any("the line broke" in line for line in lines) and not any("given up" in line for line in lines)


class Silent(Here):
    """One agent never answers a question of a round."""

    is_silent = True

    def one(self, name: str, message: bytes) -> Reply | None:
        return None if self.is_silent and name == "bob" and self.exchanges > 2 else super().one(name, message)


def test_rounds_with_too_few_answers_change_nothing(tmp_path: Path) -> None:
    here = Silent(tmp_path, SCAFFLSA)
    lines: list[str] = []
    results = serve(here, least_answers=3, report=lines.append)
    assert np.array_equal(results.theta("m"), np.zeros((1, 9))) and sum("given up" in line for line in lines) == 5
    (tmp_path / "two").mkdir()
    with_two = serve(Silent(tmp_path / "two", SCAFFLSA), least_answers=2)
    assert with_two.outcomes["m"].name == "incomplete" and results.outcomes["m"].name == "incomplete"
    assert np.abs(with_two.theta("m")).max() > 0.0


def test_a_server_stops_after_many_rounds_with_too_few_answers(tmp_path: Path) -> None:
    here = Silent(tmp_path, SCAFFLSA.replace("rounds = 5", "rounds = 30"))
    with pytest.raises(fedsa.MachineError, match="20 rounds in a row had too few answers"):
        serve(here, least_answers=3)
    # The next call goes on.
    here.is_silent = False
    assert np.abs(serve(here, least_answers=3).theta("m")).max() > 0.0


class Half(Here):
    """One agent answers the first question of a round, and not the second one."""

    def one(self, name: str, message: bytes) -> Reply | None:
        is_second = not message.startswith(b"fsaE") and message[1] == 1
        return None if name == "bob" and is_second else super().one(name, message)


def test_rounds_that_begin_well_are_given_up_all_the_same(tmp_path: Path) -> None:
    here = Half(tmp_path, SCAFFLSA.replace("rounds = 5", "rounds = 30").replace('"scafflsa"', '"fedhsa"'))
    with pytest.raises(fedsa.MachineError, match="20 rounds in a row had too few answers"):
        serve(here, least_answers=3)


class Mute(Here):
    """Nobody answers for some exchanges."""

    until = 10**6

    def one(self, name: str, message: bytes) -> Reply | None:
        return None if 4 < self.exchanges <= self.until else super().one(name, message)


def test_a_server_stops_where_nobody_answers_any_more(tmp_path: Path) -> None:
    here = Mute(tmp_path, SCAFFLSA)
    with pytest.raises(fedsa.MachineError, match="no agent has answered in 3 rounds"):
        serve(here)
    assert not (tmp_path / "out" / "summary.json").exists()
    # The next call goes on, and whoever answers counts.
    here.until = here.exchanges
    assert np.abs(serve(here).theta("m")).max() > 0.0


def test_who_cannot_take_part_is_told_and_left_out(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    (tmp_path / "other.toml").write_text(SCAFFLSA.replace("gamma = 0.9", "gamma = 0.8"))
    stranger = Agent(tmp_path / "other.toml", here.files[0], rules=NO_RULES)
    plain = here.one

    def one(name: str, message: bytes) -> Reply | None:
        if name != "mallory":
            return plain(name, message)
        try:
            return Reply(stranger.handle(message))
        except fedsa.InputError as e:
            return Reply(refused=str(e))

    here.one = one  # type: ignore[method-assign]
    here.names = [*here.names, "mallory"]
    results = serve(here, most=4, deadline=0.5)
    told = json.loads((tmp_path / "out/summary.json").read_text())["federation"]
    assert "the problem" in told["excluded"]["mallory"] and len(told["agents"]) == 3
    assert np.array_equal(results.theta("m"), engine(SCAFFLSA, here.files).theta("m"))


def test_too_few_agents_are_no_federation(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    here.names = here.names[:2]
    with pytest.raises(fedsa.MachineError, match="2 agents have come"):
        serve(here, deadline=0.3)
    # Who came before has applied; the third comes later.
    here.names = ["carol", "alice", "bob"]
    assert np.array_equal(serve(here).theta("m"), engine(SCAFFLSA, here.files).theta("m"))


class Threads:
    """A second carrier: an agent a thread, with queues in place of a network."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        self.inboxes: dict[str, queue.Queue[bytes | None]] = {name: queue.Queue() for name in agents}
        self.answers: queue.Queue[tuple[str, Reply]] = queue.Queue()
        self.threads = [threading.Thread(target=self.work, args=item, daemon=True) for item in agents.items()]
        for thread in self.threads:
            thread.start()

    def work(self, name: str, agent: Agent) -> None:
        while (message := self.inboxes[name].get()) is not None:
            try:
                self.answers.put((name, Reply(agent.handle(message))))
            except fedsa.InputError as e:
                self.answers.put((name, Reply(refused=str(e))))

    def reachable(self) -> Collection[str]:
        return list(self.inboxes)

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        for name, message in messages.items():
            self.inboxes[name].put(message)
        replies: dict[str, Reply] = {}
        while len(replies) < len(messages) and (left := deadline - time.monotonic()) > 0:
            try:
                name, reply = self.answers.get(timeout=left)
            except queue.Empty:
                break
            replies[name] = reply
        return replies


def test_another_carrier_is_a_page(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    agents = {name: Agent(here.settings, file, number=i, rules=NO_RULES) for i, (name, file) in enumerate(zip(here.names, here.files))}
    results = federation.serve(here.settings, Threads(agents), agents=3, out=tmp_path / "out")
    assert np.array_equal(results.theta("m"), engine(SCAFFLSA, here.files).theta("m"))


def sealed(state: bytes) -> bytes:
    """A state of a server with its checksum."""
    return json.dumps({"layout": 6, "sha256": hashlib.sha256(state).hexdigest()}).encode() + b"\n" + state


@pytest.mark.parametrize(
    ("contents", "text"),
    [
        (b"", "not the state"),
        (b"{}", "not the state"),
        (b'{"layout": 99}', "layout 99"),
        (b'{"layout": 5, "rounds": []}', "layout 5; this version has 6"),
        (b'{"layout": 5, "history": {}}', "damaged"),
        (sealed(b"{}"), "not the state"),
        (sealed(b'{"history": {"bytes": 9, "sha256": "", "epoch": null}}'), "0 bytes of lines"),
        (sealed(b'{"history": {"bytes": 0, "sha256": "", "epoch": null}}'), "of another state"),
    ],
)
def test_states_of_servers_that_are_none_are_refused(tmp_path: Path, contents: bytes, text: str) -> None:
    here = Here(tmp_path, SCAFFLSA)
    (tmp_path / "out.state").mkdir()
    (tmp_path / "out.state/server.state").write_bytes(contents)
    with pytest.raises(fedsa.InputError, match=text):
        serve(here)
    assert (tmp_path / "out.state/server.state").read_bytes() == contents


def test_bad_settings_name_what_is_accepted(tmp_path: Path) -> None:
    here = Here(tmp_path, SCAFFLSA)
    for more in ({"deadline": 0.0}, {"weight_cap": 0.0}, {"least_answers": -1}, {"most": 2}, {"agents": 0}):
        with pytest.raises(fedsa.InputError):
            serve(here, **more)
    with pytest.raises(fedsa.InputError, match="cannot be read"):
        federation.serve(tmp_path / "none.toml", here, agents=3, out=tmp_path / "out")
    with pytest.raises(fedsa.InputError, match="no data"):
        Agent(here.settings)
    with pytest.raises(fedsa.MachineError, match="does not answer"):
        federation.Resident(tmp_path / "none").handle(b"")
    assert not (tmp_path / "out").exists()


def test_seconds_go_on_where_a_server_was_stopped(tmp_path: Path) -> None:
    """Traces of federations have seconds, which count the time in which a server ran; those of runs in one process have none."""
    here = Stopping(tmp_path, SCAFFLSA, 4, True)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        serve(here)
    first, paused = time.monotonic() - began, 1.0
    time.sleep(paused)
    results = serve(here)
    seconds = np.asarray(results.trace()["seconds"])
    assert len(seconds) == 6 and seconds[0] == 0.0 and (np.diff(seconds) > 0.0).all()
    assert seconds[-1] < time.monotonic() - began - paused and first > 0.0
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["results"][0]["seconds"] >= seconds[-1] >= sum(one["seconds"] for one in summary["federation"]["exchanges"])
    assert "seconds since the start" in fedsa.open(tmp_path / "out").plot(x="seconds").svg
    local = engine(SCAFFLSA, here.files)
    assert "seconds" in results.trace().columns and "seconds" not in local.trace().columns
    with pytest.raises(fedsa.InputError, match="seconds.*of a run in one process"):
        local.plot(x="seconds")


def test_categories_and_classes_are_those_of_all_agents(tmp_path: Path) -> None:
    """Colours and labels that some agents lack: the weights are those of all rows, and predict them. The reference is the colour of most rows."""
    text = settings('[problem]\nkind = "glm"\nfamily = "multinomial"\ntarget = "y"\nridge = 1e-2\nintercept = true\nweighting = "rows"\n', 'kind = "newton"', "mean", 8)
    here = Here(tmp_path, text)
    colours, labels = [["red", "blue"], ["green"], ["red", "sea"]], [["no"], ["yes", "no", "well"], ["well", "yes"]]
    for agent, file in enumerate(here.files):
        rows = [f"{math.sin(0.7 * i + agent)},{colours[agent][i % len(colours[agent])]},{labels[agent][i * i % len(labels[agent])]}" for i in range(30)]
        Path(file).write_text("x,colour,y\n" + "\n".join(rows) + "\n")
    results, expected = serve(here), engine(text, here.files)
    assert np.array_equal(results.theta("m"), expected.theta("m")) and results.theta("m").shape == (1, 10)
    weights = json.loads((tmp_path / "out/weights.json").read_text())
    assert weights["classes"] == ["no", "well", "yes"] and weights["columns"] == ["x", "colour=blue", "colour=red", "colour=sea"]
    command = [sys.executable, "-m", "fedsa", "predict", str(tmp_path / "out"), here.files[2], "--out", str(tmp_path / "predicted.csv")]
    subprocess.run(command, check=True)
    assert "well" in (tmp_path / "predicted.csv").read_text()


class Sites(Here):
    """Agents of this process with these files and settings."""

    def __init__(self, folder: Path, settings: Path, files: list[str]) -> None:
        self.folder, self.settings, self.files = folder, settings, files
        self.names = [f"site {number}" for number in range(len(files))]
        self.exchanges = 0


def task(folder: Path, command: str, files: list[str], *options: str) -> tuple[dict[str, Any], fedsa.Results]:
    """The weights of a task in one process, and the results of the federation whose settings it writes."""
    program = [sys.executable, "-m", "fedsa", command, *files, *options]
    subprocess.run([*program, "--out", str(folder / "local"), "--quiet"], check=True)
    subprocess.run([*program, "--federation", str(folder / "app")], check=True)
    sites = Sites(folder, folder / "app/settings.toml", files)
    results = federation.serve(sites.settings, sites, agents=len(files), out=folder / "out", deadline=5.0)
    return json.loads((folder / "local/weights.json").read_text()), results


@pytest.mark.parametrize("options", [(), ("--method", "newton"), ("--method", "fib-shed")])
def test_five_sites_fit_the_model_of_one_process(tmp_path: Path, options: tuple[str, ...]) -> None:
    """A site with one row counted a fifth in a federation, without a word."""
    files = []
    for site, rows in enumerate((40, 60, 25, 80, 1)):
        lines = ["a,b,y"]
        for i in range(rows):
            a, b = math.sin(0.7 * i + site), math.cos(1.3 * i)
            lines.append(f"{a},{b},{3 + a - 2 * b + 0.1 * math.sin(2.9 * i) - 20 * (rows == 1)}")
        path = tmp_path / f"site_{site}.csv"
        path.write_text("\n".join(lines) + "\n")
        files.append(str(path))
    local, results = task(tmp_path, "fit", files, "--model", "least-squares", "--target", "y", "--partition", "files", *options)
    there = json.loads((tmp_path / "out/weights.json").read_text())
    for key in ("coefficients", "intercept", "theta", "outcome", "rounds", "exchanges", "vectors_up", "bits_up"):
        assert there[key] == local[key], key
    assert there["outcome"] == "converged" and abs(there["intercept"] - 2.9) < 0.2
    assert [one.name for one in results.outcomes.values()] == ["converged"]


def test_levels_and_their_reference_are_those_of_one_process(tmp_path: Path) -> None:
    """The most frequent level of all rows is the reference, the first one of several, whatever single sites have most of."""
    files = []
    for site, colours in enumerate((["sea", "red"], ["blue", "blue", "green"], ["red", "sea", "green", "sea"])):
        lines = ["a,colour,y"]
        for i in range(24):
            lines.append(f"{math.sin(0.7 * i + site)},{colours[i % len(colours)]},{math.cos(1.3 * i) + site}")
        path = tmp_path / f"site_{site}.csv"
        path.write_text("\n".join(lines) + "\n")
        files.append(str(path))
    local, _ = task(tmp_path, "fit", files, "--model", "least-squares", "--target", "y", "--partition", "files")
    there = json.loads((tmp_path / "out/weights.json").read_text())
    # Of sea there are 24 rows, of red 18, blue 16, green 14.
    assert there["categories"] == local["categories"] and local["categories"][0]["reference"] == "sea"
    assert there["columns"] == local["columns"] and there["coefficients"] == local["coefficients"]


def test_logs_of_agents_are_evaluated_as_in_one_process(tmp_path: Path) -> None:
    files = data(tmp_path, LOGS)
    local, results = task(tmp_path, "evaluate", files, "--gamma", "0.9")
    there = json.loads((tmp_path / "out/weights.json").read_text())
    for key in ("theta", "features", "ranges", "ridge", "outcome", "rounds"):
        assert there[key] == local[key], key
    assert [one.name for one in results.outcomes.values()] == ["converged"]


def moves(folder: Path, agents: int) -> list[str]:
    """Random walks from 0.5 to 1, with steps of their own."""
    names = []
    for agent in range(agents):
        rng, lines, step = np.random.default_rng(agent), ["s_0,next_0,reward,done,episode,action,behaviour"], 0.1 + 0.05 * agent
        for episode in range(40):
            x, end = 0.5, False
            while not end:
                action = int(rng.random() < 0.5)
                new = min(max(x + (step if action else -step), 0.0), 1.0)
                end = new == 1.0
                lines.append(f"{x},{new},{float(end)},{int(end)},{episode},{action},0.5")
                x = new
        names.append(str(folder / f"moves_{agent}.csv"))
        Path(names[-1]).write_text("\n".join(lines) + "\n")
    return names


@pytest.mark.parametrize("options", [(), ("--method", "fqi"), ("--pessimism", "support:4")])
def test_agents_find_the_policy_of_one_process(tmp_path: Path, options: tuple[str, ...]) -> None:
    files = moves(tmp_path, 3)
    settings = ("--actions", "left,right", "--gamma", "0.9", "--features", "fourier:3", "--ridge", "1e-4", "--holdout", "0", *options)
    program = [sys.executable, "-m", "fedsa", "improve", *files, *settings]
    if "--pessimism" in options:
        ended = subprocess.run([*program, "--federation", str(tmp_path / "app")], check=False, capture_output=True, text=True)
        assert ended.returncode == 2 and "pessimism" in ended.stderr, ended.stderr
        return
    subprocess.run([*program, "--out", str(tmp_path / "local"), "--quiet"], check=True)
    subprocess.run([*program, "--federation", str(tmp_path / "app")], check=True)
    sites = Sites(tmp_path, tmp_path / "app/settings.toml", files)
    federation.serve(sites.settings, sites, agents=len(files), out=tmp_path / "out", deadline=5.0)
    local, there = (fedsa.ActionValueFunction.load(tmp_path / name) for name in ("local", "out"))
    assert there.weights_ == pytest.approx(local.weights_, rel=1e-9) and there.actions_ == ["left", "right"]
    assert there.greedy([[0.3], [0.8]]).tolist() == [1, 1]
    of_program, of_server = (json.loads((tmp_path / name / "policy.json").read_text()) for name in ("local", "out"))
    for key in ("actions", "columns", "ending", "feature_map", "gamma", "method", "ranges", "ridge"):
        assert of_server[key] == of_program[key], key
    assert [one["transitions"] for one in of_server["agents"]] == [one["transitions"] for one in of_program["agents"]]
