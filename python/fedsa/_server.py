"""The server of a federation over any carrier, whose state is on the disk before anything is sent."""

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

# After so many rounds without any answer the server stops.
MAX_UNANSWERED = 3

# So often a call founds the federation anew for agents that have applied with other data: whoever did so every time would hold up the others.
MAX_FOUNDED = 3


def listed(reasons: Mapping[str, str], most: int = 5) -> str:
    """Agents with the reasons why they do not take part, the first ones by name."""
    told = [f"{who}: {why}" for who, why in reasons.items()]
    return "; ".join(told[:most]) + (f"; and {len(told) - most} more" if len(told) > most else "")


@dataclass(frozen=True)
class Waiting:
    """How the server waits: the table ``[federation]`` of the settings."""

    connect: float
    deadline: float
    least_answers: int
    least_share: float
    repeats: int
    leave_after: int | None
    invite: float

    @classmethod
    def of(cls, deployment: _fedsa.Deployment) -> Waiting:
        """Those of a deployment."""
        told = json.loads(deployment.waiting())
        return cls(**{one.name: told[one.name] for one in fields(cls)})


class Server:
    """The server of a federation, from enrolment to results."""

    def __init__(
        self,
        deployment: _fedsa.Deployment,
        carrier: AgentCarrier,
        agents: tuple[int, int],
        folder: str,
        report: Callable[[str], object],
    ) -> None:
        self.deployment, self.carrier, self.agents, self.report = deployment, carrier, agents, report
        self.rules = Waiting.of(deployment)
        self.file = os.path.join(folder, "server.state")
        self.enrolment = deployment.enrolment(*agents)
        self.membership: _fedsa.Membership | None = None
        self.node: _fedsa.ServerNode | None = None
        # Who takes part, by their numbers.
        self.names: list[str] = []
        self.unanswered = 0
        # How often this call has founded the federation anew.
        self.founded_anew = 0
        # The change of members that the method refused last.
        self.refused: tuple[list[str], list[str]] | None = None
        self.progress = Progress()
        self.history = History(os.path.join(folder, "server.lines"))
        # Until when seconds are counted.
        self.counted = time.monotonic()
        if os.path.exists(self.file):
            with _server_state.about(self.file):
                self._restore()

    def _restore(self) -> None:
        """Go on from the state on the disk."""
        self.progress = _server_state.restored(self.file, self.history)
        if self.progress.membership is None or self.progress.server is None:
            self.enrolment.restore(self.progress.enrolment)
            # Agents are asked again: they may be others since.
            for who in self.enrolment.applied():
                self.enrolment.withdraw(who)
            return
        membership = self.deployment.membership(*self.agents, self.progress.membership)
        node = _fedsa.ServerNode(membership.federation(), membership.counts_late)
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
        # A federation that is founded needs no applications.
        progress.enrolment = self.enrolment.save() if self.membership is None else b""
        progress.membership = None if self.membership is None else self.membership.save()
        progress.server = None if self.node is None else self.node.save()
        _server_state.save(self.file, progress, self.history)

    def _carry(self, messages: Mapping[str, bytes], seconds: float) -> tuple[dict[str, Reply], float]:
        """Carry messages; what came back, and the seconds that it took. The state is on the disk before."""
        self._save()
        began = time.monotonic()
        replies = dict(self.carrier.exchange(messages, began + seconds))
        for who, reply in replies.items():
            # What others say goes into files and to terminals.
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
        connect = self.rules.connect
        ends = time.monotonic() + connect
        # Until when those are left alone who cannot take part: whoever repairs its data is asked again.
        refused: dict[str, float] = {}
        # Those who applied when agents were asked last.
        fresh: set[str] = set()
        while True:
            reachable = list(self.carrier.reachable())
            if self._forget([who for who in self.enrolment.applied() if who not in reachable]):
                # Numbers and places are free that were in their way.
                refused.clear()
            known, now = self.enrolment.applied(), time.monotonic()
            new = [who for who in reachable if who not in known and refused.get(who, now) <= now]
            is_last = now >= ends
            if new and not self.enrolment.is_full:
                fresh = self._ask_to_apply(new, min(self.rules.deadline, max(ends - time.monotonic(), 1.0)), refused)
            is_last = is_last or time.monotonic() >= ends
            once_more = [who for who in reachable if who in refused and who not in new]
            if is_last and once_more and not self.enrolment.is_full:
                fresh |= self._ask_to_apply(once_more, min(self.rules.deadline, 1.0), refused)
            applied = self.enrolment.applied()
            if is_last or self.enrolment.is_full:
                if fresh.issuperset(applied):
                    break
                # Who applied before may have been started again since, on other data or with another number.
                fresh = self._ask_to_apply(applied, self.rules.deadline, refused)
                if is_last:
                    break
            else:
                time.sleep(min(0.2, connect))
        if not self.enrolment.has_enough:
            self._save()
            told = listed(self.progress.excluded)
            what = f"{len(self.enrolment.applied())} agents have come in {connect:.0f} s" + (f"; {told}" if told else "")
            raise MachineError(what, "machine", "agents", "more agents, fewer that must come, or more seconds; the next call goes on")
        membership, excluded = self.enrolment.close()
        self.progress.excluded.update(excluded)
        node = _fedsa.ServerNode(membership.federation(), membership.counts_late)
        self._begin(membership, node, [])
        self.counted = time.monotonic()
        self.history.add_round(node.recorded(), 0.0, [])

    def _forget(self, gone: Sequence[str]) -> bool:
        """Forget applications of those who are no longer there, before there is a federation: somebody else may have come in their place.
        Whether there are any."""
        for who in gone:
            self.enrolment.withdraw(who)
            self.report(f"{who} has gone before the federation began")
        return bool(gone)

    def _ask_to_apply(self, asked: Sequence[str], seconds: float, refused: dict[str, float]) -> set[str]:
        """Ask agents to apply, or to apply again; those who have. Those who cannot take part are left alone for a while."""
        invitation = self.enrolment.invite(len(asked))
        self.progress.count(None, [invitation] * len(asked))
        replies, seconds = self._carry({who: invitation for who in asked}, seconds)
        self.progress.cost_seconds += seconds
        before = set(self.enrolment.applied())
        for who in asked:
            self.enrolment.withdraw(who)
        come = set()
        for who in asked:
            reply = replies.get(who, Reply(lost="no answer"))
            if self._applies(who, reply, self.enrolment.take, is_known=who in before):
                come.add(who)
                refused.pop(who, None)
            elif reply.lost is None:
                refused[who] = time.monotonic() + max(self.rules.connect / 4, 2.0)
        return come

    def _applies(self, who: str, reply: Reply, take: Callable[[str, bytes], bool], is_known: bool = False) -> bool:
        """Whether what came back is an application that counts."""
        if reply.lost is not None:
            self.report(f"{who} does not take part: {reply.lost}")
            return False
        try:
            if reply.body is None:
                raise InputError(reply.refused or "no application", "message.refused")
            take(who, reply.body)
        except FedsaError as e:
            # Why one was excluded as the federation began is not hidden by what it is told since.
            if self.node is None or who not in self.progress.excluded:
                self.progress.excluded[who] = e.what
            self.report(f"{who} cannot take part: {e.what}")
            return False
        self.progress.count(None, [], len(reply.body))
        self.progress.excluded.pop(who, None)
        if not is_known:
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
        progress.anew, progress.renewed = [], []
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

    def _changed(self) -> list[str]:
        """Those of the epoch who have other data now than those with which they have applied."""
        progress = self.progress
        return [who for who in self.names if who in progress.leaving and who in progress.excluded and who not in progress.barred]

    def _is_to_found_anew(self) -> bool:
        """Whether agents have other data now, and nothing was computed with those with which they have applied."""
        node, membership = self.node, self.membership
        assert node is not None and membership is not None
        return node.rounds() == 0 and membership.epoch == 0 and self.founded_anew < MAX_FOUNDED and bool(self._changed())

    def _found_anew(self) -> None:
        """Go back to enrolment, where all apply with the data that they have."""
        self.founded_anew += 1
        self.report(f"the federation is founded anew: {', '.join(self._changed())} applied with other data before the first round")
        epoch, progress = self.history.epochs[-1], self.progress
        # What it has taken so far counts for the epoch that comes.
        cost = [a + b for a, b in zip(progress.cost, (epoch.messages, epoch.bytes_down, epoch.bytes_up))]
        self.progress = Progress(excluded=progress.excluded, cost=cost, cost_seconds=progress.cost_seconds + epoch.seconds)
        self.history = History(self.history.file)
        self.enrolment = self.deployment.enrolment(*self.agents)
        self.membership, self.node, self.names, self.unanswered = None, None, [], 0
        self.enrol()

    def _regroup(self) -> None:
        """Open the next epoch, if agents have come or gone since the last round."""
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
        room = self.agents[1] - len(self.names) + len(gone)
        self._invite(room - len(membership.waiting()))
        waiting = membership.waiting() if room > 0 else []
        if not (gone or waiting) or (gone, waiting) == self.refused:
            return
        try:
            next, before = membership.next_epoch(gone)
            regrouped = node.regrouped(next.federation(), before)
        except InputError as e:
            # They stay members, whose answers are missing, until the change is one that the method and the number of agents allow.
            self.refused = (gone, waiting)
            self.report(f"nobody joins or leaves: {e.what}; accepted is {e.help}")
            return
        self._begin(next, regrouped, gone)

    def _invite(self, room: int) -> None:
        """Invite those who can be reached and do not take part, where there is room; those who did not come are invited ever more seldom."""
        node, membership, progress = self.node, self.membership, self.progress
        assert node is not None and membership is not None
        if room <= 0 or self.rules.invite <= 0:
            return
        known, now = {*self.names, *membership.waiting(), *progress.barred}, node.rounds()
        new = [who for who in self.carrier.reachable() if who not in known and progress.again.get(who, [0, 1])[0] <= now]
        if not new:
            return
        invitation = membership.invitation()
        progress.count(None, [invitation] * len(new))
        replies, seconds = self._carry({who: invitation for who in new}, self.rules.invite)
        progress.cost_seconds += seconds
        for who in new:
            if not self._applies(who, replies.get(who, Reply(lost="no answer")), membership.take):
                rounds = progress.again.get(who, [0, 1])[1]
                progress.again[who] = [now + rounds, 2 * rounds]

    def _admit(self, numbers: Collection[int]) -> dict[str, str]:
        """Tell those of the epoch who have not heard of it. Why those refuse it who can be told nothing else."""
        progress, membership = self.progress, self.membership
        assert membership is not None
        waiting = {self.names[c]: c for c in numbers if self.names[c] not in progress.admitted}
        final: dict[str, str] = {}
        if not waiting:
            return final
        self._invite_anew([who for who in waiting if who in progress.anew])
        # Those with whom the federation is founded anew would refuse this one again.
        untold = {*progress.anew, *(self._changed() if self._is_to_found_anew() else ())}
        messages = {who: membership.told(c, who not in progress.strangers) for who, c in waiting.items() if who not in untold}
        if not messages:
            return final
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
                    # It knows no earlier epoch.
                    progress.strangers.append(who)
                elif not self._begin_anew(who):
                    final[who] = reply.refused
            self.report(f"{who} does not take part in this round: {why}")
        return final

    def _begin_anew(self, who: str) -> bool:
        """Have one begin anew that refuses what it was told in full, once until it answers: its state is newer than the server's, or of
        another federation. Whether that is to be tried."""
        progress = self.progress
        if who in progress.renewed:
            return False
        progress.renewed.append(who)
        progress.anew.append(who)
        return True

    def _invite_anew(self, invited: Sequence[str]) -> None:
        """Invite those of the epoch who are to begin anew. What admits them then has the mark of their application, without which nobody's
        state is given up."""
        progress, membership, epoch = self.progress, self.membership, self.history.epochs[-1]
        assert membership is not None
        if not invited:
            return
        invitation = membership.invitation()
        progress.count(epoch, [invitation] * len(invited))
        replies, seconds = self._carry({who: invitation for who in invited}, self.rules.deadline)
        epoch.seconds += seconds
        for who in invited:
            reply = replies.get(who, Reply(lost="no answer"))
            if reply.lost is not None:
                self.report(f"{who} was invited to begin anew: {reply.lost}")
                continue
            progress.anew.remove(who)
            try:
                if reply.body is None:
                    raise InputError(reply.refused or "no application", "message.refused")
                membership.renew(who, reply.body)
                progress.excluded.pop(who, None)
            except FedsaError as e:
                self.report(f"{who} cannot begin anew: {e.what}")
                progress.excluded[who] = f"it refuses what this server tells it, and cannot begin anew: {e.what}"
                if reply.body is not None and who not in progress.leaving:
                    # What it has now is not what it takes part with. The federation is founded anew, or it is out of the next epoch, and can join
                    # again with that.
                    progress.leaving.append(who)
                continue
            epoch.messages += 1
            epoch.bytes_up += len(reply.body)
            self.report(f"{who} begins anew, because it refuses what this server asks: its state is newer than the server's, or another one's")

    def _available(self) -> list[int]:
        """The numbers of those who can be reached; none where the federation is to be founded anew."""
        assert self.node is not None
        waited = time.monotonic() + self.rules.deadline
        # Until when those are left alone who refuse whatever admits them, and why they do.
        refusals: dict[str, tuple[float, str]] = {}
        while True:
            reachable, now = set(self.carrier.reachable()), time.monotonic()
            numbers = [c for c, who in enumerate(self.names) if who in reachable]
            told = self._admit([c for c in numbers if self.names[c] not in refusals or refusals[self.names[c]][0] <= now])
            if self.progress.anew and self.node.rounds() == 0:
                # Nobody begins without those who have other data: what these are is known before the first round.
                told |= self._admit([c for c in numbers if self.names[c] in self.progress.anew])
            again = time.monotonic() + max(self.rules.deadline / 4, 1.0)
            refusals.update({who: (again, why) for who, why in told.items()})
            if self._is_to_found_anew():
                return []
            admitted = [c for c in numbers if self.names[c] in self.progress.admitted]
            if admitted:
                self.progress.wanted = [who for c, who in enumerate(self.names) if c not in admitted]
                return admitted
            if time.monotonic() > waited:
                # Others may join when it goes on.
                self.progress.decided = -1
                self._save()
                if refusals:
                    changed = self.progress.excluded
                    what = "no agent takes part: " + listed({who: changed.get(who, why) for who, (_, why) in refusals.items()})
                    raise MachineError(what, "machine", "agents", f"agents that accept what the server tells them; {self._how_to_go_on()}")
                raise MachineError("no agent can be reached", "machine", "agents", "agents that run; the next call goes on")
            time.sleep(0.2)

    def _how_to_go_on(self) -> str:
        """What can be done when nobody answers."""
        if not self._changed():
            return "the next call goes on"
        return f"the next call goes on if they have the data with which they applied; without {self.file} it founds the federation anew with what they have"

    def run(self) -> None:
        """Carry the rounds."""
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
                    self._save()
                    return
                is_last = node.rounds() >= self.deployment.rounds
                if self.progress.decided < node.rounds() and not is_last:
                    self._regroup()
                    self.progress.decided = node.rounds()
                available = self._available()
                if not available and is_last:
                    self.history.add_residual(None)
                    continue
                if not available:
                    self._found_anew()
                    kind, messages = self.node.todo()
                    continue
                kind, messages = self.node.open(available)
            elif kind == "reached":
                # The round stays open: its answers have shown what the last one has come to.
                self._save()
                return
            elif kind == "tell":
                # What would have travelled with the next questions; it is over whether they have heard it or not.
                self._ask(messages, wants_answers=False)
                if self._is_over():
                    self._save()
                    return
                kind, messages = "over", {}
            else:
                kind, messages = self._exchange(messages)

    def _check_answers(self) -> None:
        """Stop where nobody answers any more: further rounds would change nothing."""
        if self.unanswered < MAX_UNANSWERED:
            return
        self._save()
        accepted = f"agents that answer by the deadline; {self._how_to_go_on()}"
        raise MachineError(f"no agent has answered in {self.unanswered} rounds", "machine", "agents", accepted)

    def _is_over(self) -> bool:
        assert self.node is not None
        # Whether the last round has reached the target, the first answers of a further one show.
        is_unknown = self.deployment.has_target and len(self.history.residuals) < len(self.history.rounds)
        return (self.node.rounds() >= self.deployment.rounds and not is_unknown) or self.node.diverged() is not None

    def _end_round(self) -> None:
        """Record the round, and who was silent in it."""
        node, progress = self.node, self.progress
        assert node is not None
        if len(self.history.rounds) > node.rounds():
            return
        self._count_seconds()
        self.history.add_round(node.recorded(), progress.seconds, json.loads(node.take_arrivals()))
        for who in self.names:
            if who in progress.heard:
                progress.silent.pop(who, None)
            elif who in progress.wanted:
                progress.silent[who] = progress.silent.get(who, 0) + 1
        progress.wanted, progress.heard = [], []

    def _exchange(self, messages: Mapping[int, bytes]) -> tuple[str, dict[int, bytes]]:
        """Ask until there are enough answers; what is to be done next."""
        node, rules = self.node, self.rules
        assert node is not None
        enough = min(rules.least_answers, len(messages))
        waiting = messages
        tries = rules.repeats + 1
        while True:
            refusing = self._ask(waiting, wants_answers=True)
            waiting = {c: messages[c] for c in node.may_still_answer() if c in messages}
            tries -= 1
            if tries <= 0:
                # Those who refused are told more, and nobody else is waited for.
                waiting = {c: message for c, message in waiting.items() if self.names[c] in refusing}
            if self._has_enough(enough) or not waiting:
                break
        # The first exchange of a round is at the iterate with which the last one ended.
        if len(self.history.residuals) < len(self.history.rounds):
            self.history.add_residual(node.residual())
        if self._has_reached() or node.rounds() >= self.deployment.rounds:
            return "reached", {}
        if self._has_enough(enough):
            self.unanswered = 0
            return node.close()
        share = f", of {node.share_answered():.0%} of the weight" if rules.least_share > 0 else ""
        self.report(f"round {node.rounds() + 1} is given up: {node.answered()} of {enough} answers{share}")
        self.unanswered = self.unanswered + 1 if node.answered() == 0 else 0
        return node.give_up()

    def _has_reached(self) -> bool:
        """Whether the answers of all agents to the first question of a round show that the last round has reached a target. Later questions of
        the round have other answers."""
        assert self.node is not None
        residuals = self.history.residuals
        is_of_all = self.node.answered() == len(self.names) and len(residuals) == len(self.history.rounds)
        return is_of_all and residuals[-1] == self.node.residual() and self.deployment.has_reached(residuals)

    def _has_enough(self, answers: int) -> bool:
        """Whether the open question has so many answers, with the least share of the weight."""
        assert self.node is not None
        # Sums of the same weights in another order differ in their last bits.
        return self.node.answered() >= answers and self.node.share_answered() >= self.rules.least_share - 1e-12

    def _ask(self, messages: Mapping[int, bytes], wants_answers: bool) -> list[str]:
        """Carry messages to agents by their numbers, and take what comes back. Who refuses them, and will be told more before they are repeated."""
        progress, node = self.progress, self.node
        assert node is not None
        self._admit(messages)
        names = {self.names[c]: c for c in messages}
        if wants_answers:
            progress.wanted.extend(who for who in names if who not in progress.wanted)
        replies, seconds = self._carry({who: messages[c] for who, c in names.items()}, self.rules.deadline)
        counted, refusing = 0, []
        for who, c in names.items():
            reply = replies.get(who, Reply(lost="no answer"))
            why = reply.refused or reply.lost
            if why is not None:
                self.report(f"{who}: {why}")
            if reply.refused is not None and wants_answers and self._tell_again(who):
                refusing.append(who)
            counted += (reply.body is None or self._take(who, c, reply.body)) and who in replies and why is None
        late = getattr(self.carrier, "late", None)
        came = [(who, body) for who, body in late() if who in self.names] if late is not None else []
        late_ones = sum(self._take(who, self.names.index(who), body) for who, body in came)
        self._note(messages, replies, seconds, (counted, late_ones))
        return refusing

    def _tell_again(self, who: str) -> bool:
        """Tell all of the epoch again to one that refuses a question: it may have lost its state, or have an old one. One that refuses it
        nevertheless begins anew. Whether it will be told anything."""
        progress = self.progress
        if who not in progress.admitted:
            return False
        if who not in progress.retold:
            progress.retold.append(who)
        elif not self._begin_anew(who):
            return False
        progress.admitted.remove(who)
        progress.strangers.append(who)
        return True

    def _take(self, who: str, c: int, answer: bytes) -> bool:
        """Take an answer; whether it counts."""
        progress = self.progress
        assert self.node is not None
        if who not in progress.heard:
            progress.heard.append(who)
        # One that answers is there again.
        progress.leaving = [one for one in progress.leaving if one != who]
        try:
            self.node.take(c, answer)
            for told in (progress.retold, progress.renewed):
                if who in told:
                    told.remove(who)
            if who not in progress.barred:
                progress.excluded.pop(who, None)
        except FedsaError as e:
            self.report(f"{who} was refused: {e.what}")
            return False
        return True

    def _note(self, messages: Mapping[int, bytes], replies: Mapping[str, Reply], seconds: float, counted: tuple[int, int]) -> None:
        """Keep what an exchange has taken; `counted` are its answers that count, and those of earlier rounds."""
        assert self.node is not None and self.membership is not None
        exchanges, rounds = self.history.exchanges, self.node.rounds()
        again = exchanges[-1].exchange + 1 if exchanges and exchanges[-1].round == rounds + 1 else 1
        record = ExchangeRecord(
            round=rounds + 1,
            exchange=again,
            epoch=self.membership.epoch,
            asked=len(messages),
            answered=counted[0],
            bytes_down=sum(map(len, messages.values())),
            bytes_up=sum(len(reply.body) for reply in replies.values() if reply.body is not None),
            wire_bytes_up=sum(reply.wire_bytes for reply in replies.values()),
            seconds=seconds,
            late=counted[1],
            residual=self.node.residual(),
        )
        self.history.add_exchange(record)
        self.report(str(record))

    def results(self) -> Results:
        """The results of the rounds."""
        assert self.node is not None and self.membership is not None
        progress, history = self.progress, self.history
        residuals = [*history.residuals, *[None] * (len(history.rounds) - len(history.residuals))]
        rows = list(zip(history.rounds, residuals, history.ends))
        told = {
            "agents": history.epochs[-1].agents,
            "excluded": progress.excluded,
            "epochs": [asdict(one) for one in history.epochs],
            "exchanges": [asdict(one) for one in history.exchanges],
        }
        return Results._of(self.deployment.results(self.node, rows, progress.seconds, json.dumps(told), self.membership))

    def wrote(self, out: Path) -> bool:
        """Whether a server with this state was cut off after it had written its results there: nothing else has the seconds of its exchanges."""
        if self.progress.writes != os.path.abspath(out):
            return False
        try:
            told = json.loads(_files.read(os.path.join(out, "summary.json")))["federation"]["exchanges"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return False
        ran = self.history.exchanges
        # A decimal may be read with another last bit.
        return len(told) == len(ran) and all(math.isclose(one["seconds"], other.seconds, rel_tol=1e-12) for one, other in zip(told, ran))

    def write(self, results: Results, out: Path, overwrite: bool) -> None:
        """Write the results with their weights; the state is then of no more use. A call that was cut off here left a part of them."""
        assert self.membership is not None and results._native is not None
        place = os.path.abspath(out)
        is_ours = self.progress.writes == place
        # What somebody else has there is refused now and by further calls.
        if not is_ours and (overwrite or not os.path.isdir(place) or not os.listdir(place)):
            self.progress.writes = place
            self._save()
        self.deployment.write(results._native, self.membership, os.fspath(out), overwrite or is_ours)
        # Lines without a state are of no federation.
        for file in (self.file, self.history.file):
            os.remove(file)
