"""The native half of the package; private."""

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsa.errors import FedsaError

__version__: str

_Notify = Callable[[list[tuple[Any, ...]]], object]
# Dense rows, or starts, columns, numbers and width of sparse ones.
_Rows = NDArray[np.float64] | tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], int]
# Rows, targets, names, weights, agents.
_GivenRows = tuple[
    _Rows, NDArray[np.float64] | tuple[list[str], NDArray[np.int64]], list[str] | None, NDArray[np.float64] | None, int | NDArray[np.float64]
]
# Files, or tables: a name, matrices with the names of their columns, and columns of text.
_Given = list[str] | list[tuple[str, list[tuple[list[str], NDArray[np.float64]]], list[tuple[str, list[str]]]]]

@final
class AgentData:
    @staticmethod
    def of(experiment: Experiment) -> AgentData: ...
    @property
    def agents(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def weights(self) -> NDArray[np.float64]: ...

@final
class CancelToken:
    """A token by which another thread stops a call.

    Examples
    --------
    >>> import fedsa
    >>> token = fedsa.CancelToken()
    >>> token.cancel()
    >>> token.is_cancelled
    True
    """

    def __new__(cls) -> CancelToken: ...
    def cancel(self) -> None:
        """Ask everything that has the token to stop soon."""

    @property
    def is_cancelled(self) -> bool:
        """Whether it is cancelled."""

@final
class ClientNode:
    def __new__(cls, federation: Federation, data: AgentData, agent: int, place: int) -> ClientNode: ...
    def handle(self, message: bytes) -> bytes | None: ...
    def save(self) -> bytes: ...
    def restore(self, state: bytes) -> None: ...

@final
class Agents:
    """The agents of a call of a client rule: n of them, a row each."""

    @property
    def numbers(self) -> NDArray[np.int64]:
        """The numbers of the agents, increasing: an array (n,)."""

    @property
    def round(self) -> int:
        """The round, from 0."""

    @property
    def exchange(self) -> int:
        """The exchange of the round: 1 in the second of two, otherwise 0."""

    @property
    def reply(self) -> NDArray[np.float64] | None:
        """What the server has sent in the second of two exchanges: an array (dim,)."""

    @property
    def memory(self) -> dict[str, NDArray[np.float64]]:
        """What the agents keep, by name: arrays (n, dim)."""

    @property
    def step_sizes(self) -> NDArray[np.float64]:
        """The step sizes of the round."""

    @property
    def step_sum(self) -> float:
        """The sum E of the step sizes."""

    @property
    def rng(self) -> Draws:
        """Random numbers of the agents for other things than samples."""

    def steps(
        self, theta: ArrayLike | None = None, *, drift: ArrayLike | None = None, step_sizes: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Make local steps ``theta += eta (g_c(theta, z) + drift)``: an array (n, dim)."""

    def sample(self, theta: ArrayLike | None = None) -> NDArray[np.float64]:
        """Evaluate the operators on the next sample of each agent: an array (n, dim)."""

@final
class Draws:
    """Random numbers of the agents of a call, each from its agent's own stream."""

    def __new__(cls, seed: int, agents: Sequence[int], round: int = 0) -> Draws: ...
    @property
    def agents(self) -> NDArray[np.int64]:
        """The numbers of the agents of the call, increasing: an array (n,)."""

    def random(self, k: int | None = None) -> NDArray[np.float64]:
        """Draw numbers uniform in [0, 1): an array (n, k), or (n,) without k."""

    def normal(self, k: int | None = None) -> NDArray[np.float64]:
        """Draw standard normal numbers: an array (n, k), or (n,) without k."""

@final
class Experiment:
    @staticmethod
    def of_text(
        name: str,
        text: str,
        base: str,
        set: dict[str, Any],
        sweeps: dict[str, Any],
        quick: bool,
        held: tuple[HeldProblem | None, list[HeldRules]],
    ) -> Experiment: ...
    @staticmethod
    def of_table(
        table: dict[str, Any],
        base: str,
        set: dict[str, Any],
        sweeps: dict[str, Any],
        quick: bool,
        held: tuple[HeldProblem | None, list[HeldRules]],
    ) -> Experiment: ...
    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    def labels(self) -> list[str]: ...
    def points(self) -> list[str]: ...
    def to_toml(self, defaults: bool) -> str: ...
    def table_json(self, defaults: bool) -> str: ...
    def run(
        self,
        notify: _Notify | None,
        cancel: CancelToken | None,
        folder: tuple[str, str] | None,
        force: bool,
        checkpoint_every: float,
    ) -> Ran: ...

@final
class Federation:
    def __new__(
        cls,
        method: tuple[dict[str, Any], HeldRules | None],
        weights: list[float],
        dim: int,
        seed: int,
        start: list[float] | None,
        agreement: str | None,
    ) -> Federation: ...
    @property
    def agents(self) -> int: ...
    @property
    def dim(self) -> int: ...
    @property
    def digest(self) -> int: ...

@final
class Figure:
    def render(self, format: str) -> bytes: ...

@final
class HeldProblem:
    @staticmethod
    def arrays(arrays: dict[str, NDArray[np.float64]], table: dict[str, Any]) -> HeldProblem: ...
    @staticmethod
    def logs(tables: list[tuple[str, list[tuple[list[str], NDArray[np.float64]]], list[tuple[str, list[str]]]]], table: dict[str, Any]) -> HeldProblem: ...
    @staticmethod
    def rows(sets: list[Any], table: dict[str, Any]) -> HeldProblem: ...
    @staticmethod
    def operator(
        name: str,
        dim: int,
        weights: list[float],
        functions: dict[str, Callable[..., Any]],
        root: list[float] | None,
        check: Callable[..., Any],
    ) -> HeldProblem: ...

@final
class HeldRules:
    def __new__(
        cls,
        table: dict[str, Any],
        client: tuple[str, str, list[str], dict[str, Callable[..., Any]]] | None,
        server: tuple[str, str, dict[str, Callable[..., Any]], bool] | None,
        checks: tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]],
    ) -> HeldRules: ...

@final
class Ran:
    def summary_json(self) -> str: ...
    def report_json(self) -> str: ...
    def config(self) -> str: ...
    def trace(self) -> Table: ...
    def outputs(self) -> dict[str, NDArray[np.float64]]: ...
    def figure(self, keys: dict[str, Any]) -> Figure: ...
    def files(self) -> dict[str, bytes]: ...
    def write_into(self, folder: str, overwrite: bool) -> None: ...

@final
class ServerRound:
    """What a server rule gets beside theta and the mean of the answers."""

    @property
    def round(self) -> int:
        """The round, from 0."""

    @property
    def step_sum(self) -> float:
        """The sum E of the step sizes."""

    @property
    def asked(self) -> float:
        """The sum of the weights of the agents that were asked."""

    @property
    def state(self) -> dict[str, NDArray[np.float64]]:
        """What the rule keeps, by name."""

    @property
    def answers(self) -> NDArray[np.float64] | None:
        """The answers that arrived, (n, dim), if the rule wants each of them."""

    @property
    def agents(self) -> NDArray[np.int64] | None:
        """The agents that sent them: an array (n,)."""

    @property
    def weights(self) -> NDArray[np.float64] | None:
        """Their weights, times the factors by which the answers arrived: an array (n,)."""

    @property
    def rounds(self) -> NDArray[np.int64] | None:
        """The rounds that they answer: an array (n,)."""

@final
class ServerNode:
    def __new__(cls, federation: Federation) -> ServerNode: ...
    def open(self, available: list[int] | None) -> tuple[str, dict[int, bytes]]: ...
    def take(self, agent: int, answer: bytes) -> None: ...
    def close(self) -> tuple[str, dict[int, bytes]]: ...
    def todo(self) -> tuple[str, dict[int, bytes]]: ...
    def theta(self) -> NDArray[np.float64]: ...
    def rounds(self) -> int: ...
    def diverged(self) -> int | None: ...
    def answered(self) -> int: ...
    def metrics(self, data: AgentData) -> dict[str, float]: ...
    def give_up(self) -> tuple[str, dict[int, bytes]]: ...
    def finish(self) -> tuple[str, dict[int, bytes]]: ...
    def may_still_answer(self) -> list[int]: ...
    def recorded(self) -> bytes: ...
    def counts(self) -> dict[str, int]: ...
    def save(self) -> bytes: ...
    def restore(self, state: bytes) -> None: ...

@final
class Session:
    def __new__(
        cls,
        server: ServerNode,
        data: AgentData | None,
        stop: tuple[float | None, float | None, float | None],
        patience: float | None,
        quorum: tuple[int, int],
    ) -> Session: ...
    def advance(
        self,
        rounds: int,
        available: list[int] | None,
        carry: Callable[[dict[int, bytes], float | None], list[tuple[int, bytes]]],
        refused: Callable[[int, Exception], object] | None,
    ) -> str: ...
    def recorded(self, from_: int, /) -> list[dict[str, Any]]: ...

@final
class Table:
    """A table of named columns of equal length.

    ``polars.DataFrame(table)`` and ``pyarrow.table(table)`` take it without a copy, through the Arrow PyCapsule
    interface. ``table["mse"]`` is a NumPy array: NaN where a number is not known.
    """

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""

    def __len__(self) -> int: ...
    def __getitem__(self, name: str, /) -> NDArray[Any]: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class Theory:
    @staticmethod
    def of(
        experiment: Experiment, notify: _Notify | None, cancel: CancelToken | None, target: float | None, full: bool
    ) -> Theory: ...
    def json(self) -> str: ...
    def page(self) -> str: ...
    def curve(
        self, method: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], str]: ...
    def figure(self, which: str) -> Figure: ...

@final
class Tuned:
    @property
    def summary(self) -> str: ...
    @property
    def report(self) -> list[str]: ...
    def figure(self) -> Figure: ...
    def files(self) -> dict[str, bytes]: ...

def bundled_experiments() -> list[tuple[str, str]]: ...
def check_experiment(
    experiment: Experiment, notify: _Notify | None, cancel: CancelToken | None, force: bool
) -> tuple[str, FedsaError | None]: ...
def check_part(part: str, table: dict[str, Any]) -> None: ...
def compare_folders(a: str, b: str) -> str: ...
def get_threads() -> int: ...
def main(args: list[str]) -> int: ...
def read_arrays(bytes: bytes) -> dict[str, NDArray[np.float64]]: ...
def read_trace(bytes: bytes) -> Table: ...
def redraw_folder(folder: str, keys: dict[str, Any]) -> Figure: ...
def require_finished(folder: str) -> None: ...
def schema_json() -> str: ...
def set_threads(threads: int | None) -> None: ...
def tune_experiment(
    experiment: Experiment,
    notify: _Notify | None,
    cancel: CancelToken | None,
    options: dict[str, Any],
    folder: tuple[str, str] | None,
) -> Tuned: ...

@final
class LinearModel:
    def __new__(cls, text: str) -> LinearModel: ...
    def scores(self, x: _Rows) -> NDArray[np.float64]: ...
    def predictions(self, x: _Rows) -> NDArray[np.float64]: ...

@final
class ValueFit:
    def weights_json(self) -> str: ...
    def told_json(self) -> str: ...
    def npz(self) -> bytes: ...
    def ran(self) -> Ran | None: ...
    def pictures(self) -> list[tuple[str, Figure]]: ...

@final
class ValueModel:
    def __new__(cls, text: str, npz: bytes | None) -> ValueModel: ...
    def inputs(self) -> list[str]: ...
    def file_columns(self) -> dict[str, str]: ...
    def values(self, states: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def errors(self, states: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def features(self, states: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def return_errors(
        self, given: _Given, columns: dict[str, str], agent_column: str | None, gamma: float, lam: float
    ) -> list[tuple[str, int, float | None, float | None]]: ...

def arrow_columns(capsule: object) -> dict[str, Any]: ...
def evaluate_logs(notify: _Notify | None, cancel: CancelToken | None, given: _Given, settings: dict[str, Any]) -> ValueFit: ...
def value_difference(
    a: tuple[float, float, float, float, int, float], b: tuple[float, float, float, float, int, float], level: float
) -> tuple[float, float, float, float, int, float]: ...
def write_file(path: str, contents: bytes) -> None: ...
def fit_rows(
    notify: _Notify | None, cancel: CancelToken | None, given: _GivenRows, settings: dict[str, Any]
) -> tuple[str, str, Ran, NDArray[np.float64] | None]: ...
def table_bytes(given: list[tuple[str, NDArray[np.float64]]], format: str) -> bytes: ...

@final
class Deployment:
    def __new__(cls, text: str, name: str) -> Deployment: ...
    @property
    def rounds(self) -> int: ...
    def enrolment(self, least: int, most: int) -> Enrolment: ...
    def agent(self, data: list[str], base: str, number: int | None) -> LocalAgent: ...
    def results(self, server: ServerNode, rows: list[bytes], seconds: float, told: str) -> Ran: ...

@final
class Enrolment:
    def invite(self, count: int) -> bytes: ...
    def take(self, sender: str, application: bytes) -> bool: ...
    def applied(self) -> list[str]: ...
    @property
    def has_enough(self) -> bool: ...
    @property
    def is_full(self) -> bool: ...
    def close(self) -> tuple[Federation, list[tuple[str, int, int, bytes]], list[tuple[str, str]]]: ...
    def save(self) -> bytes: ...
    def restore(self, state: bytes) -> None: ...

@final
class LocalAgent:
    def handle(self, message: bytes) -> bytes | None: ...
    @property
    def number(self) -> int | None: ...
    def save(self) -> bytes: ...
    def restore(self, state: bytes) -> None: ...
