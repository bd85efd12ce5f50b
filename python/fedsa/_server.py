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

# Rounds without any answer after which the server stops.
MAX_UNANSWERED = 3

# The most restarts of enrolment in one call for agents whose data changed. Without a limit one agent could block the others.
MAX_FOUNDED = 3


def listed(reasons: Mapping[str, str], most: int = 5) -> str:
    """The first `most` agents with the reasons why they do not take part, and the number of the others."""
    told = [f"{who}: {why}" for who, why in reasons.items()]
    return "; ".join(told[:most]) + (f"; and {len(told) - most} more" if len(told) > most else "")


@dataclass(frozen=True)
class Waiting:
    """The waiting times and limits of the table ``[federation]``."""

    connect: float
    deadline: float
    least_answers: int
    least_share: float
    repeats: int
    leave_after: int | None
    invite: float

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
        # The questions about sums after the last round.
        self.after: _fedsa.Afterwards | None = None
        # The names of the members, by number.
        self.names: list[str] = []
        self.unanswered = 0
        # How often this call restarted enrolment.
        self.founded_anew = 0
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
        if self.progress.membership is None or self.progress.server is None:
            self.enrolment.restore(self.progress.enrolment)
            # Ask all agents again: their data may have changed.
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
        connect = self.rules.connect
        ends = time.monotonic() + connect
        # When to ask rejected agents again; they may have repaired their data.
        refused: dict[str, float] = {}
        # Agents that applied in the last invitation.
        fresh: set[str] = set()
        while True:
            reachable = list(self.carrier.reachable())
            if self._forget([who for who in self.enrolment.applied() if who not in reachable]):
                # Numbers and places became free, so rejected agents may now be accepted.
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
                # Ask earlier applicants again: they may have restarted with other data or another number.
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
        """Withdraw applications of agents that left before the founding, so that others can take their places. Whether there were any."""
        for who in gone:
            self.enrolment.withdraw(who)
            self.report(f"{who} has gone before the federation began")
        return bool(gone)

    def _ask_to_apply(self, asked: Sequence[str], seconds: float, refused: dict[str, float]) -> set[str]:
        """Ask agents to apply, or to apply again. Returns the applicants. Rejected agents are not asked again for a while."""
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
        """Whether a reply is a valid application; `take` takes it."""
        if reply.lost is not None:
            self.report(f"{who} does not take part: {reply.lost}")
            return False
        try:
            if reply.body is None:
                raise InputError(reply.refused or "no application", "refused-message")
            take(who, reply.body)
        except FedsaError as e:
            # Later refusals must not hide the reason of an exclusion at the founding.
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
        """Members whose data changed since their application."""
        progress = self.progress
        return [who for who in self.names if who in progress.leaving and who in progress.excluded and who not in progress.barred]

    def _is_to_found_anew(self) -> bool:
        """Whether to restart enrolment: data of members changed before the first round, and the limit of restarts is not reached."""
        node, membership = self.node, self.membership
        assert node is not None and membership is not None
        return node.rounds() == 0 and membership.epoch == 0 and self.founded_anew < MAX_FOUNDED and bool(self._changed())

    def _found_anew(self) -> None:
        """Restart enrolment, so that all agents apply with their current data."""
        self.founded_anew += 1
        self.report(f"the federation is founded anew: {', '.join(self._changed())} applied with other data before the first round")
        epoch, progress = self.history.epochs[-1], self.progress
        # The costs so far count for the next epoch.
        cost = [a + b for a, b in zip(progress.cost, (epoch.messages, epoch.bytes_down, epoch.bytes_up))]
        self.progress = Progress(excluded=progress.excluded, cost=cost, cost_seconds=progress.cost_seconds + epoch.seconds)
        self.history = History(self.history.file)
        self.enrolment = self.deployment.enrolment(*self.agents)
        self.membership, self.node, self.names, self.unanswered = None, None, [], 0
        self.enrol()

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
        room = self.agents[1] - len(self.names) + len(gone)
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
        """Announce the epoch to members that do not know it yet. Returns the reasons of those that refuse it for good."""
        progress, membership = self.progress, self.membership
        assert membership is not None
        waiting = {self.names[c]: c for c in numbers if self.names[c] not in progress.admitted}
        final: dict[str, str] = {}
        if not waiting:
            return final
        self._invite_anew([who for who in waiting if who in progress.anew])
        # Agents that cause a restart of enrolment would refuse this epoch again.
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
                    # It does not know an earlier epoch, and needs the full announcement.
                    progress.strangers.append(who)
                elif not self._begin_anew(who):
                    final[who] = reply.refused
            self.report(f"{who} does not take part in this round: {why}")
        return final

    def _begin_anew(self, who: str) -> bool:
        """Schedule a reset of an agent that refused the full announcement, because its state is newer than the server's or belongs to another
        federation. False if a reset was tried since its last answer."""
        progress = self.progress
        if who in progress.renewed:
            return False
        progress.renewed.append(who)
        progress.anew.append(who)
        return True

    def _invite_anew(self, invited: Sequence[str]) -> None:
        """Invite members that are to reset. The later announcement carries the mark of their application. Agents give up their state only for
        such a mark."""
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
                    raise InputError(reply.refused or "no application", "refused-message")
                membership.renew(who, reply.body)
                progress.excluded.pop(who, None)
            except FedsaError as e:
                self.report(f"{who} cannot begin anew: {e.what}")
                progress.excluded[who] = f"it refuses what this server tells it, and cannot begin anew: {e.what}"
                if reply.body is not None and who not in progress.leaving:
                    # Its data changed. Either enrolment restarts, or the agent leaves with the next epoch and can join again with the new
                    # data.
                    progress.leaving.append(who)
                continue
            epoch.messages += 1
            epoch.bytes_up += len(reply.body)
            self.report(f"{who} begins anew, because it refuses what this server asks: its state is newer than the server's, or another one's")

    def _available(self) -> list[int]:
        """Wait for members. Returns the numbers of the reachable ones; none if enrolment must restart."""
        assert self.node is not None
        waited = time.monotonic() + self.rules.deadline
        # When to ask agents again that refuse the announcement, and their reasons.
        refusals: dict[str, tuple[float, str]] = {}
        while True:
            reachable, now = set(self.carrier.reachable()), time.monotonic()
            numbers = [c for c, who in enumerate(self.names) if who in reachable]
            told = self._admit([c for c in numbers if self.names[c] not in refusals or refusals[self.names[c]][0] <= now])
            if self.progress.anew and self.node.rounds() == 0:
                # Before the first round, find out whether the data of these members changed.
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
                # The next call may change the members again.
                self.progress.decided = -1
                self._save()
                if refusals:
                    changed = self.progress.excluded
                    what = "no agent takes part: " + listed({who: changed.get(who, why) for who, (_, why) in refusals.items()})
                    raise MachineError(what, "machine", "agents", f"agents that accept what the server tells them; {self._how_to_go_on()}")
                raise MachineError("no agent can be reached", "machine", "agents", "agents that run; the next call goes on")
            time.sleep(0.2)

    def _how_to_go_on(self) -> str:
        """The advice when no agent answers."""
        if not self._changed():
            return "the next call goes on"
        return f"the next call goes on if they have the data with which they applied; without {self.file} it founds the federation anew with what they have"

    def run(self) -> None:
        """Run the rounds."""
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
                # The round stays open: its answers showed the result of the last one.
                self._save()
                return
            elif kind == "tell":
                # Last messages, which otherwise travel with the next questions. The round ends even if they are lost.
                self._ask(messages, wants_answers=False)
                if self._is_over():
                    self._save()
                    return
                kind, messages = "over", {}
            else:
                kind, messages = self._exchange(messages)

    def _check_answers(self) -> None:
        """Stop after too many rounds without answers: further rounds would change nothing."""
        if self.unanswered < MAX_UNANSWERED:
            return
        self._save()
        accepted = f"agents that answer by the deadline; {self._how_to_go_on()}"
        raise MachineError(f"no agent has answered in {self.unanswered} rounds", "machine", "agents", accepted)

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
        self.history.add_round(node.recorded(), progress.seconds, json.loads(node.take_arrivals()))
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
                # Only agents that refused are asked once more, after a full announcement.
                waiting = {c: message for c, message in waiting.items() if self.names[c] in refusing}
            if self._has_enough(enough) or not waiting:
                break
        # The first exchange of a round measures the residual at the end of the last round.
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
        """Whether the first answers of a round, from all agents, show that the last round reached a target. Answers to later questions of the
        round do not."""
        assert self.node is not None
        residuals = self.history.residuals
        is_of_all = self.node.answered() == len(self.names) and len(residuals) == len(self.history.rounds)
        return is_of_all and residuals[-1] == self.node.residual() and self.deployment.has_reached(residuals)

    def _has_enough(self, answers: int) -> bool:
        """Whether the open question has `answers` answers with the least share of the weight."""
        assert self.node is not None
        # Tolerance, because sums of the same weights in another order differ in their last bits.
        return self.node.answered() >= answers and self.node.share_answered() >= self.rules.least_share - 1e-12

    def _ask(self, messages: Mapping[int, bytes], wants_answers: bool) -> list[str]:
        """Send messages to agents by number, and take the answers. Returns agents that refused, and will get a full announcement before the
        repeat."""
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
        # Sums of the same weights in another order differ in their last bits.
        missing = max(0.0, round(1.0 - node.share_answered(), 12)) if wants_answers else 0.0
        self._note(messages, replies, seconds, (counted, late_ones), missing)
        return refusing

    def _tell_again(self, who: str) -> bool:
        """Schedule a full announcement for an agent that refuses a question, because it may have lost its state or have an old one. If it
        refuses again, schedule a reset. False if nothing is left to try."""
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
        """Take an answer. Whether it counts."""
        progress = self.progress
        assert self.node is not None
        if who not in progress.heard:
            progress.heard.append(who)
        # An agent that answers has not left.
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

    def _note(
        self, messages: Mapping[int, bytes], replies: Mapping[str, Reply], seconds: float, counted: tuple[int, int], missing: float
    ) -> None:
        """Record an exchange; `counted` are its valid answers, and the late ones of earlier rounds; `missing` is the weight without an answer."""
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
            missing=missing,
        )
        self.history.add_exchange(record)
        self.report(str(record))

    def ask_sums(self) -> None:
        """After the last round, ask all members for sums over their data, until nothing is left to ask."""
        assert self.node is not None and self.membership is not None
        after = self.after = self.deployment.afterwards(self.node, self.membership)
        if after is None:
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
        rows = list(zip(history.rounds, residuals, history.ends))
        told = {
            "agents": history.epochs[-1].agents,
            "excluded": progress.excluded,
            "epochs": [asdict(one) for one in history.epochs],
            "exchanges": [asdict(one) for one in history.exchanges],
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

    def write(self, results: Results, out: Path, overwrite: bool) -> None:
        """Write the results and delete the state. A call that was killed here may have left partial results, which are replaced."""
        assert self.membership is not None and results._native is not None
        place = os.path.abspath(out)
        is_ours = self.progress.writes == place
        # Mark the folder as ours, unless it holds files of others: those are refused by this call and all later ones.
        if not is_ours and (overwrite or not os.path.isdir(place) or not os.listdir(place)):
            self.progress.writes = place
            self._save()
        self.deployment.write(results._native, self.membership, self.after, os.fspath(out), overwrite or is_ours)
        # The state goes first: lines without a state are ignored.
        for file in (self.file, self.history.file):
            os.remove(file)
