"""What agents bring to a federation: data that do not go together, that are too large together, and settings that nobody could answer."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np
import pytest
from needs import NO_RULES

import fedsa
from fedsa import federation
from fedsa.federation import Agent, Reply

RUN = '\n[sampling]\nkind = "mean"\n[[method]]\nlabel = "m"\nkind = "newton"\n[run]\nrounds = 4\nseeds = [5]\n'
LOGISTIC = 'id = "t"\ntitle = "t"\n[problem]\nkind = "logistic"\nridge = 1e-2\nintercept = true\nweighting = "rows"\n'
CLASSES = 'id = "t"\ntitle = "t"\n[problem]\nkind = "glm"\nfamily = "multinomial"\ntarget = "y"\nridge = 1e-2\nweighting = "rows"\n'


class Here:
    """Agents of this process with a file each."""

    def __init__(self, folder: Path, text: str, files: list[str]) -> None:
        self.settings, self.asked = folder / "settings.toml", 0
        self.agents: dict[str, Agent] = {}
        self.settings.write_text(text)
        self.files = {f"n{c}": file for c, file in enumerate(files)}

    def reachable(self) -> Collection[str]:
        return list(self.files)

    def exchange(self, messages: Mapping[str, bytes], deadline: float) -> Mapping[str, Reply]:
        self.asked += 1
        return {who: self.answer(who, message) for who, message in messages.items()}

    def answer(self, who: str, message: bytes) -> Reply:
        try:
            if who not in self.agents:
                self.agents[who] = Agent(self.settings, self.files[who], number=int(who[1:]), rules=NO_RULES)
            return Reply(self.agents[who].handle(message))
        except fedsa.errors.FedsaError as e:
            return Reply(refused=str(e))


def table(folder: Path, name: str, levels: int, classes: int) -> str:
    path = folder / f"{name}.csv"
    path.write_text("x,c,y\n" + "".join(f"{math.sin(i)},c{i % levels},k{i * i % 7 % classes if levels < 9 else i % classes}\n" for i in range(999)))
    return str(path)


def test_a_model_beyond_the_memory_of_the_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [table(tmp_path, "a", 3, 3), table(tmp_path, "b", 4, 3), table(tmp_path, "many", 600, 40)]
    here = Here(tmp_path, CLASSES + RUN, files)
    monkeypatch.setenv("FEDSA_MEMORY", "300M")
    with pytest.raises(fedsa.OutOfMemory) as e:
        federation.serve(here.settings, here, agents=3, out=tmp_path / "out", deadline=2)
    # 39 times 600 levels and x.
    for text in ("the server of 3 agents", "d = 23439", "600 of `c`", "40 of `the labels`", "needs about", "300 MB are available"):
        assert text in str(e.value), str(e.value)
    assert "`n2` alone has 596 of the values of column `c`" in str(e.value)
    others = Here(tmp_path, CLASSES + RUN, files[:2])
    results = federation.serve(others.settings, others, agents=2, out=tmp_path / "others", deadline=2)
    together = fedsa.Experiment.from_text(CLASSES + RUN, set={"problem.data": files[:2], "problem.partition": "files"}).run()
    np.testing.assert_array_equal(results.theta("m"), together.theta("m"))


def test_what_a_federation_cannot_draw_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    files = [table(tmp_path, "a", 3, 3), table(tmp_path, "b", 4, 3)]
    here = Here(tmp_path, CLASSES + RUN + '[figure]\ny = "mse"\n', files)
    with pytest.raises(fedsa.InputError) as e:
        federation.serve(here.settings, here, agents=2, out=tmp_path / "out", deadline=2)
    assert e.value.key == "figure.y" and e.value.line is not None and here.asked == 0
    drawn = Here(tmp_path, CLASSES + RUN + '[figure]\ny = "residual"\n', files)
    federation.serve(drawn.settings, drawn, agents=2, out=tmp_path / "out", deadline=2)
    assert list((tmp_path / "out").glob("*.svg"))


def test_libsvm_shards_of_different_widths_take_part_together(tmp_path: Path) -> None:
    files = []
    for agent, last in enumerate([5, 12, 3]):
        path = tmp_path / f"{agent}.svm"
        cells = [[j for j in range(1, last + 1) if (i * 7 + j * 3) % 5 < 2 or (i == 0 and j == last)] for i in range(40)]
        sign = [1 if (i * i + agent) % 3 == 0 else -1 for i in range(40)]
        path.write_text("".join(f"{s} {' '.join(f'{j}:{math.sin(i * j)}' for j in row)}\n" for i, (s, row) in enumerate(zip(sign, cells))))
        files.append(str(path))
    here = Here(tmp_path, LOGISTIC + RUN, files)
    results = federation.serve(here.settings, here, agents=3, out=tmp_path / "out", deadline=2)
    together = fedsa.Experiment.from_text(LOGISTIC + RUN, set={"problem.data": files, "problem.partition": "files"}).run()
    assert results.theta("m").shape == (1, 13)
    np.testing.assert_array_equal(results.theta("m"), together.theta("m"))
