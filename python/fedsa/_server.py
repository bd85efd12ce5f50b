"""The server of a federation over any carrier. It writes its state to disk before it sends."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

from fedsa import _fedsa, _files, _server_state
from fedsa._carrier import AgentCarrier, Reply, shown
from fedsa._files import Path
from fedsa._results import Results
from fedsa._server_state import EpochRecord, ExchangeRecord, History, Progress
from fedsa.errors import FedsaError, InputError, MachineError

# Rounds in a row without any answer, and rounds with too few of them, after which the server stops.
MAX_UNANSWERED = 3
MAX_GIVEN_UP = 20

# How often the server asks those that have not answered, if an exchange has too few answers. Then it gives the round up.
TRIES = 2

# Seconds after which the server asks again, before the first round, if some of the agents refuse: they may have repaired their data.
RETRY = 2.0

# Seconds between two rounds in which the server waits for applications of new agents, if there is room.
INVITE = 20.0


def listed(reasons: Mapping[str, str], most: int = 5) -> str:
    """The first `most` agents with the reasons why they do not take part, and the number of the others."""
    told = [f"{who}: {why}" for who, why in reasons.items()]
    return "; ".join(told[:most]) + (f"; and {len(told) - most} more" if len(told) > most else "")


@dataclass(frozen=True)
class Waiting:
    """The server's settings of the table ``[federation]``."""

    agents: int
    most: int | None
    deadline: float
    least_answers: int
    leave_after: int | None
    out: str

    @classmethod
    def of(cls, deployment: _fedsa.Deployment) -> Waiting:
        """Read them from a deployment."""
        told = json.loads(deployment.waiting())
        return cls(**{one.name: told[one.name] for one in fields(cls)})


class Server:
    """The server of a federation, from enrolment to results."""

    def __init__(
        self,
        deployment: _fedsa.Deployment,
        carrier: AgentCarrier,
        folder: str,
        report: Callable[[str], object],
    ) -> None:
        self.deployment, self.carrier, self.report = deployment, carrier, report
        self.rules = Waiting.of(deployment)
        self.file = os.path.join(folder, "server.state")
        self.enrolment = deployment.enrolment()
        self.membership: _fedsa.Membership | None = None
        self.node: _fedsa.ServerNode | None = None
        # The questions about sums after the last round.
        self.after: _fedsa.Afterwards | None = None
        # The names of the members, by number.
        self.names: list[str] = []
        self.unanswered = self.given_up = 0
        # The last change of members that was refused.
        self.refused: tuple[list[str], list[str]] | None = None
        self.progress = Progress()
        self.history = History(os.path.join(folder, "server.lines"))
        # The time up to which seconds are counted.
        self.counted = time.monotonic()
        if os.path.exists(self.file):
            with _server_state.about(self.file):
                self._restore()

    def _restore(self) -> None:
        """Restore the saved state."""
        self.progress = _server_state.restored(self.file, self.history)
        # Operators may have deleted states since.
        self.progress.retold = []
        if self.progress.membership is None or self.progress.server is None:
            # The number of the run stays; all agents apply again, because their data may have changed.
            self.enrolment.restore(self.progress.enrolment)
            self._withdraw()
            return
        membership = self.deployment.membership(self.progress.membership)
        node = _fedsa.ServerNode(membership.federation())
        node.restore(self.progress.server)
        self.history.check(node.rounds())
        self._enter(membership, node)
        self.report(f"goes on after round {node.rounds()}")

    def _enter(self, membership: _fedsa.Membership, node: _fedsa.ServerNode) -> None:
        self.membership, self.node = membership, node
        self.names = [name for name, *_ in membership.members()]

    def _count_seconds(self) -> None:
        now = time.monotonic()
        self.progress.seconds += now - self.counted
        self.counted = now

    def _save(self) -> None:
        progress = self.progress
        if self.node is not None:
            self._count_seconds()
        # After the founding, applications are no longer needed.
        progress.enrolment = self.enrolment.save() if self.membership is None else b""
        progress.membership = None if self.membership is None else self.membership.save()
        progress.server = None if self.node is None else self.node.save()
        _server_state.save(self.file, progress, self.history)

    def _carry(self, messages: Mapping[str, bytes], seconds: float) -> tuple[dict[str, Reply], float]:
        """Save the state, then send messages. Returns the replies, and the seconds that they took."""
        self._save()
        began = time.monotonic()
        replies = dict(self.carrier.exchange(messages, began + seconds))
        for who, reply in replies.items():
            # Texts of agents go into files and to terminals.
            if reply.refused is not None or reply.lost is not None:
                replies[who] = reply = replace(reply, refused=shown(reply.refused), lost=shown(reply.lost))
            if reply.body is not None and _fedsa.is_farewell(reply.body):
                replies[who] = Reply(lost="it leaves", wire_bytes=reply.wire_bytes)
                if who in self.names and who not in self.progress.leaving:
                    self.progress.leaving.append(who)
        return replies, time.monotonic() - began

    def enrol(self) -> None:
        """Wait for agents, and found the federation."""
        if self.node is not None:
            return
        most, now = self.rules.most or self.rules.agents, time.monotonic()
        ends, again = now + self.rules.deadline, now
        while not self.enrolment.is_full and now <= ends:
            now = time.monotonic()
            reachable = list(self.carrier.reachable())
            if now > ends or (len(reachable) >= most and now >= again):
                # All apply at the same time: an earlier application may be that of an agent that has restarted since.
                self._ask_to_apply(reachable)
                again = time.monotonic() + RETRY
            else:
                time.sleep(min(0.2, self.rules.deadline))
        if not self.enrolment.has_enough:
            self._save()
            told = listed(self.progress.excluded)
            what = f"{len(self.enrolment.applied())} agents have come in {self.rules.deadline:.0f} s" + (f"; {told}" if told else "")
            raise MachineError(what, "machine", "agents", "more agents, fewer that must come, or more seconds; the next call goes on")
        membership = self.enrolment.close()
        node = _fedsa.ServerNode(membership.federation())
        self._begin(membership, node, [])
        self.counted = time.monotonic()
        self.history.add_round(node.recorded(), 0.0, None)

    def _withdraw(self) -> None:
        """Forget all applications."""
        for who in self.enrolment.applied():
            self.enrolment.withdraw(who)

    def _ask_to_apply(self, asked: Sequence[str]) -> None:
        """Ask agents to apply, in place of all earlier applications."""
        self._withdraw()
        if not asked:
            return
        invitation = self.enrolment.invite(len(asked))
        self.progress.count(None, [invitation] * len(asked))
        replies, seconds = self._carry({who: invitation for who in asked}, self.rules.deadline)
        self.progress.cost_seconds += seconds
        for who in asked:
            self._applies(who, replies.get(who, Reply(lost="no answer")), self.enrolment.take)

    def _applies(self, who: str, reply: Reply, take: Callable[[str, bytes], bool]) -> bool:
        """Whether a reply is a valid application; `take` takes it."""
        if reply.lost is not None:
            self.report(f"{who} does not take part: {reply.lost}")
            return False
        try:
            if reply.body is None:
                raise InputError(reply.refused or "no application", "refused-message")
            take(who, reply.body)
        except FedsaError as e:
            self.progress.excluded[who] = e.what
            self.report(f"{who} cannot take part: {e.what}")
            return False
        self.progress.count(None, [], len(reply.body))
        self.progress.excluded.pop(who, None)
        self.report(f"{who} takes part")
        return True

    def _begin(self, membership: _fedsa.Membership, node: _fedsa.ServerNode, left: Sequence[str]) -> None:
        """Begin an epoch."""
        progress, before = self.progress, self.names
        self._enter(membership, node)
        joined = [who for who in self.names if who not in before]
        stay = set(self.names)
        progress.strangers = [who for who in progress.strangers if who in stay] + joined
        progress.admitted, progress.retold, progress.wanted, progress.heard = [], [], [], []
        progress.leaving = [who for who in progress.leaving if who in stay]
        progress.silent = {who: n for who, n in progress.silent.items() if who in stay}
        progress.again = {who: rounds for who, rounds in progress.again.items() if who not in stay}
        agents = [{"name": who, "rows": rows, "weight": weight} for who, rows, weight in membership.members()]
        messages, down, up = progress.cost
        record = EpochRecord(membership.epoch, node.rounds(), agents, joined, list(left), messages, down, up, progress.cost_seconds)
        progress.cost, progress.cost_seconds = [0, 0, 0], 0.0
        self.history.add_epoch(record)
        self.refused = None
        self.report(str(record))

    def _regroup(self) -> None:
        """Begin the next epoch, if agents joined or left since the last round."""
        node, membership, progress = self.node, self.membership, self.progress
        assert node is not None and membership is not None
        for c, why in node.exclusions():
            who = self.names[c]
            progress.excluded[who] = why
            if who not in progress.barred:
                progress.barred.append(who)
                self.report(f"{who} is excluded: {why}")
        patience = self.rules.leave_after
        silent = {who for who, n in progress.silent.items() if patience is not None and n >= patience}
        gone = [who for who in self.names if who in silent or who in progress.leaving or who in progress.barred]
        room = (self.rules.most or self.rules.agents) - len(self.names) + len(gone)
        self._invite(room - len(membership.waiting()))
        waiting = membership.waiting() if room > 0 else []
        if not (gone or waiting) or (gone, waiting) == self.refused:
            return
        try:
            next, before = membership.next_epoch(gone)
            regrouped = node.regrouped(next.federation(), before)
        except InputError as e:
            # They stay members with missing answers, until the method and the number of agents allow the change.
            self.refused = (gone, waiting)
            self.report(f"nobody joins or leaves: {e.what}; accepted is {e.help}")
            return
        self._begin(next, regrouped, gone)

    def _invite(self, room: int) -> None:
        """Invite reachable agents that do not take part, up to `room`. The pause doubles with each unsuccessful invitation."""
        node, membership, progress = self.node, self.membership, self.progress
        assert node is not None and membership is not None
        if room <= 0:
            return
        known, now = {*self.names, *membership.waiting(), *progress.barred}, node.rounds()
        new = [who for who in self.carrier.reachable() if who not in known and progress.again.get(who, [0, 1])[0] <= now]
        if not new:
            return
        invitation = membership.invitation()
        progress.count(None, [invitation] * len(new))
        replies, seconds = self._carry({who: invitation for who in new}, INVITE)
        progress.cost_seconds += seconds
        for who in new:
            if not self._applies(who, replies.get(who, Reply(lost="no answer")), membership.take):
                rounds = progress.again.get(who, [0, 1])[1]
                progress.again[who] = [now + rounds, 2 * rounds]

    def _admit(self, numbers: Collection[int]) -> dict[str, str]:
        """Announce the epoch to members that do not know it yet. Returns the reasons of those that refuse the full announcement."""
        progress, membership = self.progress, self.membership
        assert membership is not None
        waiting = {self.names[c]: c for c in numbers if self.names[c] not in progress.admitted}
        final: dict[str, str] = {}
        if not waiting:
            return final
        messages = {who: membership.told(c, who not in progress.strangers) for who, c in waiting.items()}
        progress.count(self.history.epochs[-1], list(messages.values()))
        replies, seconds = self._carry(messages, self.rules.deadline)
        self.history.epochs[-1].seconds += seconds
        for who, reply in replies.items():
            why = reply.refused or reply.lost
            if why is None:
                progress.admitted.append(who)
                progress.strangers = [one for one in progress.strangers if one != who]
                continue
            if reply.refused is not None:
                if who not in progress.strangers:
                    # It does not know an earlier epoch, and needs the full announcement.
                    progress.strangers.append(who)
                else:
                    final[who] = reply.refused
            self.report(f"{who} does not take part in this round: {why}")
        return final

    def _available(self) -> list[int]:
        """Wait for members. Returns the numbers of the reachable ones."""
        assert self.node is not None
        waited = time.monotonic() + self.rules.deadline
        # When to ask agents again that refuse the announcement, and their reasons.
        refusals: dict[str, tuple[float, str]] = {}
        while True:
            reachable, now = set(self.carrier.reachable()), time.monotonic()
            numbers = [c for c, who in enumerate(self.names) if who in reachable]
            told = self._admit([c for c in numbers if self.names[c] not in refusals or refusals[self.names[c]][0] <= now])
            again = time.monotonic() + max(self.rules.deadline / 4, 1.0)
            refusals.update({who: (again, why) for who, why in told.items()})
            admitted = [c for c in numbers if self.names[c] in self.progress.admitted]
            if admitted:
                self.progress.wanted = [who for c, who in enumerate(self.names) if c not in admitted]
                return admitted
            if time.monotonic() > waited:
                # The next call may change the members again.
                self.progress.decided = -1
                self._save()
                if refusals:
                    what = "no agent takes part: " + listed({who: why for who, (_, why) in refusals.items()})
                    raise MachineError(what, "machine", "agents", "agents that accept what the server tells them; the next call goes on")
                raise MachineError("no agent can be reached", "machine", "agents", "agents that run; the next call goes on")
            time.sleep(0.2)

    def run(self) -> None:
        """Run the rounds. :meth:`ask_sums` saves the state after the last one."""
        assert self.node is not None
        kind, messages = self.node.todo()
        while True:
            node = self.node
            if kind == "over":
                self._end_round()
                self._check_answers()
                if self._is_over():
                    kind, messages = node.finish()
                    if kind == "tell":
                        continue
                    return
                is_last = node.rounds() >= self.deployment.rounds
                if self.progress.decided < node.rounds() and not is_last:
                    self._regroup()
                    self.progress.decided = node.rounds()
                kind, messages = self.node.open(self._available())
            elif kind == "reached":
                # The round stays open: its answers showed the result of the last one.
                return
            elif kind == "tell":
                # Last messages, which otherwise travel with the next questions. The round ends even if they are lost.
                self._ask(messages)
                if self._is_over():
                    return
                kind, messages = "over", {}
            else:
                kind, messages = self._exchange(messages)

    def _check_answers(self) -> None:
        """Stop after too many rounds in a row without enough answers: further rounds would change nothing."""
        if self.unanswered >= MAX_UNANSWERED:
            what = f"no agent has answered in {self.unanswered} rounds"
        elif self.given_up >= MAX_GIVEN_UP:
            what = f"{self.given_up} rounds in a row had too few answers"
        else:
            return
        self._save()
        accepted = "agents that answer by the deadline; the next call goes on"
        raise MachineError(what, "machine", "agents", accepted)

    def _is_over(self) -> bool:
        assert self.node is not None
        # The first answers of a further round show whether the last round reached the target.
        is_unknown = self.deployment.has_target and len(self.history.residuals) < len(self.history.rounds)
        if not is_unknown and self.node.residual() is not None and self.deployment.has_reached(self.history.residuals):
            return True
        return (self.node.rounds() >= self.deployment.rounds and not is_unknown) or self.node.diverged() is not None

    def _end_round(self) -> None:
        """Record the round, and the agents that were silent in it."""
        node, progress = self.node, self.progress
        assert node is not None
        if len(self.history.rounds) > node.rounds():
            return
        self._count_seconds()
        self.history.add_round(node.recorded(), progress.seconds, progress.missing)
        progress.missing = 0.0
        # A method that asks about trial points knows the residual of the one that it accepted.
        if node.residual() is not None:
            self.history.add_residual(node.residual())
        for who in self.names:
            if who in progress.heard:
                progress.silent.pop(who, None)
            elif who in progress.wanted:
                progress.silent[who] = progress.silent.get(who, 0) + 1
        progress.wanted, progress.heard = [], []

    def _exchange(self, messages: Mapping[int, bytes]) -> tuple[str, dict[int, bytes]]:
        """Ask until there are enough answers. Returns the node's next step."""
        node = self.node
        assert node is not None
        enough = max(min(self.rules.least_answers, len(messages)), node.needed_answers())
        waiting = messages
        tries, counted = TRIES, set[str]()
        while True:
            refusing = self._ask(waiting, counted)
            waiting = {c: messages[c] for c in node.may_still_answer() if c in messages}
            tries -= 1
            if tries <= 0:
                # Only agents that refused are asked once more, after a full announcement.
                waiting = {c: message for c, message in waiting.items() if self.names[c] in refusing}
            if node.answered() >= enough or not waiting:
                break
        # The first exchange of a round measures the residual at the end of the last round.
        if len(self.history.residuals) < len(self.history.rounds) and node.shows_residual():
            self.history.add_residual(node.residual())
        if self._has_reached() or node.rounds() >= self.deployment.rounds:
            return "reached", {}
        if node.answered() >= enough:
            self.unanswered = 0
            self.progress.missing = max(self.progress.missing, self._missing())
            step = node.close()
            if step[0] != "ask":
                self.given_up = 0
            return step
        self.report(f"round {node.rounds() + 1} is given up: {node.answered()} of {enough} answers")
        self.unanswered = self.unanswered + 1 if node.answered() == 0 else 0
        self.given_up += 1
        self.progress.missing = 1.0
        return node.give_up()

    def _has_reached(self) -> bool:
        """Whether the first answers of a round, from all agents, show that the last round reached a target. Answers to later questions of the
        round do not."""
        assert self.node is not None
        residuals = self.history.residuals
        is_of_all = self.node.answered() == len(self.names) and len(residuals) == len(self.history.rounds)
        return is_of_all and residuals[-1] == self.node.residual() and self.deployment.has_reached(residuals)

    def _missing(self) -> float:
        """The share of the participants' weight without an answer to the open question."""
        assert self.node is not None
        # Sums of the same weights in another order differ in their last bits.
        return max(0.0, round(1.0 - self.node.share_answered(), 12))

    def _ask(self, messages: Mapping[int, bytes], answered: set[str] | None = None) -> list[str]:
        """Send messages to agents by number, and take the answers, if these are wanted: `answered` has the agents that answered this question
        before, and gets those that do now. Returns agents that refused, and will get a full announcement before the repeat."""
        progress, node = self.progress, self.node
        assert node is not None
        wants_answers, counted = answered is not None, set[str]() if answered is None else answered
        self._admit(messages)
        names = {self.names[c]: c for c in messages}
        if wants_answers:
            progress.wanted.extend(who for who in names if who not in progress.wanted)
        replies, seconds = self._carry({who: messages[c] for who, c in names.items()}, self.rules.deadline)
        refusing = []
        for who, c in names.items():
            reply = replies.get(who, Reply(lost="no answer"))
            why = reply.refused or reply.lost
            if why is not None:
                self.report(f"{who}: {why}")
            if reply.refused is not None and wants_answers and self._tell_again(who):
                refusing.append(who)
            if (reply.body is None or self._take(who, c, reply.body)) and who in replies and why is None:
                counted.add(who)
        missing = self._missing() if wants_answers else 0.0
        silent = [who for who in self.names if who not in counted and (who in names or who in progress.wanted)]
        self._note(messages, replies, seconds, silent, missing)
        return refusing

    def _tell_again(self, who: str) -> bool:
        """Schedule a full announcement for an agent that refuses a question, because it may have lost its state. False if it got one since its
        last answer: then its state is newer than the server's, and only its operator discards a state."""
        progress = self.progress
        if who not in progress.admitted or who in progress.retold:
            return False
        progress.retold.append(who)
        progress.admitted.remove(who)
        progress.strangers.append(who)
        return True

    def _take(self, who: str, c: int, answer: bytes) -> bool:
        """Take an answer. Whether it counts."""
        progress = self.progress
        assert self.node is not None
        if who not in progress.heard:
            progress.heard.append(who)
        # An agent that answers has not left.
        progress.leaving = [one for one in progress.leaving if one != who]
        try:
            self.node.take(c, answer)
            if who in progress.retold:
                progress.retold.remove(who)
            if who not in progress.barred:
                progress.excluded.pop(who, None)
        except FedsaError as e:
            self.report(f"{who} was refused: {e.what}")
            return False
        return True

    def _note(self, messages: Mapping[int, bytes], replies: Mapping[str, Reply], seconds: float, silent: list[str], missing: float) -> None:
        """Record an exchange; `silent` are the members without a valid answer, `missing` is their share of the weight."""
        assert self.node is not None and self.membership is not None
        exchanges, rounds = self.history.exchanges, self.node.rounds()
        again = exchanges[-1].exchange + 1 if exchanges and exchanges[-1].round == rounds + 1 else 1
        record = ExchangeRecord(
            round=rounds + 1,
            exchange=again,
            epoch=self.membership.epoch,
            asked=len(messages),
            answered=len(messages) - sum(self.names[c] in silent for c in messages),
            silent=silent,
            bytes_down=sum(map(len, messages.values())),
            bytes_up=sum(len(reply.body) for reply in replies.values() if reply.body is not None),
            wire_bytes_up=sum(reply.wire_bytes for reply in replies.values()),
            seconds=seconds,
            residual=self.node.residual(),
            missing=missing,
        )
        self.history.add_exchange(record)
        self.report(str(record))

    def ask_sums(self) -> None:
        """After the last round, ask all members for sums over their data, until nothing is left to ask. Save the state."""
        assert self.node is not None and self.membership is not None
        after = self.after = self.deployment.afterwards(self.node, self.membership)
        if after is None:
            self._save()
            return
        if self.progress.after is not None:
            after.restore(self.progress.after)
        tries, asked = 0, after.question()
        while (question := after.question()) is not None:
            tries, asked = (tries if question == asked else 0), question
            missing = self._ask_sums(after, question)
            tries += 1
            if missing and tries > 1:
                after.give_up("agents did not send their sums: " + listed(missing))
            self.progress.after = after.save()
        self._save()

    def _ask_sums(self, after: _fedsa.Afterwards, question: bytes) -> dict[str, str]:
        """Send a question about sums. Returns the agents without a valid answer, with the reasons."""
        waiting = {self.names[c]: c for c in after.waiting()}
        told = self._admit(list(waiting.values()))
        messages = {who: question for who in waiting if who in self.progress.admitted}
        replies, seconds = self._carry(messages, self.rules.deadline) if messages else ({}, 0.0)
        missing, up = {}, 0
        for who, c in waiting.items():
            reply = replies.get(who, Reply(lost=told.get(who, "no answer")))
            up += len(reply.body or b"")
            try:
                if reply.body is None:
                    raise InputError(reply.refused or reply.lost or "no answer", "refused-message")
                after.take(c, reply.body)
            except FedsaError as e:
                missing[who] = e.what
                self.report(f"{who} does not send its sums: {e.what}")
        cost, down = self.progress.after_cost, len(question) * len(messages)
        self.progress.after_cost = [cost[0] + 1, cost[1] + down, cost[2] + up]
        answered = len(waiting) - len(missing)
        self.report(f"sums after the last round: {answered} of {len(waiting)} answered, {up:,} bytes up, {down:,} down, {seconds:.2f} s")
        return missing

    def results(self) -> Results:
        """The results of the rounds."""
        assert self.node is not None and self.membership is not None
        progress, history = self.progress, self.history
        residuals = [*history.residuals, *[None] * (len(history.rounds) - len(history.residuals))]
        rows = list(zip(history.rounds, residuals, history.ends, history.missing))
        told = {
            "agents": history.epochs[-1].agents,
            "excluded": progress.excluded,
            "epochs": [asdict(one) for one in history.epochs],
            "exchanges": [asdict(one) for one in history.exchanges],
            # By round, from the first.
            "missing_weight": history.missing[1:],
            "sums": dict(zip(("exchanges", "bytes_down", "bytes_up"), progress.after_cost)),
        }
        return Results._of(self.deployment.results(self.node, rows, progress.seconds, json.dumps(told), self.membership, self.after))

    def wrote(self, out: Path) -> bool:
        """Whether a server with this state was killed after it wrote its results to `out`. The seconds of its exchanges identify them."""
        if self.progress.writes != os.path.abspath(out):
            return False
        try:
            told = json.loads(_files.read(os.path.join(out, "summary.json")))["federation"]["exchanges"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False
        ran = self.history.exchanges
        # Tolerance, because decimals may be read with another last bit.
        return len(told) == len(ran) and all(math.isclose(one["seconds"], other.seconds, rel_tol=1e-12) for one, other in zip(told, ran))

    def write(self, results: Results, out: Path) -> None:
        """Write the results and delete the state. A call that was killed here may have left partial results, which are replaced."""
        assert self.membership is not None and results._native is not None
        place = os.path.abspath(out)
        is_ours = self.progress.writes == place
        # Mark the folder as ours, unless it holds files of others: those are refused by this call and all later ones.
        if not is_ours and (not os.path.isdir(place) or not os.listdir(place)):
            self.progress.writes = place
            self._save()
        self.deployment.write(results._native, self.membership, self.after, os.fspath(out), is_ours)
        # The state goes first: lines without a state are ignored.
        for file in (self.file, self.history.file):
            os.remove(file)
