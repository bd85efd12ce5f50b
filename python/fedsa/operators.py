"""Problems from arrays, and operators written in Python, which the engine calls once per step for all agents.

>>> import numpy as np, fedsa
>>> from fedsa import methods, problems
>>> class Regression:
...     agents, dim = 4, 2
...     def __init__(self):
...         made = np.random.default_rng(0)
...         self.x = made.normal(size=(4, 50, 2))
...         self.y = self.x.sum(2) + 0.1 * made.normal(size=(4, 50))
...     def sample(self, theta, state, rng):
...         row = (50 * rng.random()).astype(int)
...         x, y = self.x[rng.agents, row], self.y[rng.agents, row]
...         return (y - (x * theta).sum(1))[:, None] * x
>>> experiment = fedsa.Experiment(problems.Custom(Regression()), methods.FedLSA(0.1, 5), rounds=50)
>>> experiment.run().theta("fedlsa").round(1).tolist()
[[1.0, 1.0]]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from fedsa import _fedsa
from fedsa._fedsa import Draws
from fedsa._kinds import Problem
from fedsa._settings import plain, plain_number
from fedsa.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

__all__ = ["Custom", "Draws", "Linear", "Operator"]

# The largest array that a `repr` shows in full.
SHOWN = 20


@runtime_checkable
class Operator(Protocol):
    """The interface of an operator for :class:`Custom`.

    Attributes
    ----------
    dim : int
        The number d of components of the model.
    agents : int
        The number N of agents.
    weights : array of shape (agents,), optional
        The agents' shares, positive; divided by their sum. Equal by default.
    root : array of shape (dim,), optional
        The root of the mean operator. By default Newton's method computes it from ``mean``.

    Notes
    -----
    A call gets the iterates ``theta`` of n agents, an array (n, dim), and their increasing numbers ``rng.agents``. The engine makes one
    call for all participants of a step; a node of a federation calls for its own agent only. An agent's values must not depend on the
    others in the call, so that results are equal bit for bit everywhere. Sums along a row are safe. Matrix products (``@``) are not: their
    last bits may change with the number of rows.

    Optional methods:

    ``start(rng)``
        The first states of the sampling processes: an array of floats or integers whose first axis has length n. It requires
        ``sampling="markov"``; ``sample`` then gets states and returns a tuple ``(g, state)``. Checkpoints contain the states.
    ``mean(theta, agents)``
        The mean operators (n, dim) of the agents with the numbers ``agents``, an array (n,). It enables the residual, the root, and
        ``sampling="mean"``.
    ``jacobian(theta, agents)``
        The Jacobians of the mean operators, (n, dim, dim): entry (i, j) is the derivative of component i by component j. It requires
        ``mean``. By default finite differences.

    Examples
    --------
    >>> import numpy as np
    >>> from fedsa.operators import Operator
    >>> class Mean:
    ...     agents, dim = 2, 1
    ...     def sample(self, theta, state, rng):
    ...         return 1.0 - theta + 0.1 * rng.normal(1)
    >>> isinstance(Mean(), Operator)
    True
    """

    dim: int
    agents: int

    def sample(self, theta: Floats, state: Any, rng: Draws) -> Any:
        """Draw a sample for each agent, and evaluate its operator.

        Parameters
        ----------
        theta : ndarray of shape (n, dim)
            The agents' iterates. The law of a sample may depend on its row; ``mean`` is then the mean under the law that theta induces.
        state : ndarray of shape (n, ..) or None
            The states of the processes, if there is a method ``start``.
        rng : Draws
            Random numbers: ``rng.random(k)`` and ``rng.normal(k)`` are (n, k), each row from its agent's own stream.

        Returns
        -------
        array of shape (n, dim), or a tuple of it and the next states
            ``g_c(theta, z)``, the direction in which theta should move: minus a gradient.
        """
        ...


def refused(what: str, key: str, help: str, code: str = "data") -> InputError:
    """Make the error about an array."""
    return InputError(what, code, key, help)


def checked(value: Any, shape: list[int] | None, integer: bool | None, name: str) -> Any:
    """Convert a result of a callback to a 64-bit array in C order, and check it."""
    import numpy as np

    key = name.rpartition(".")[2]
    try:
        array = np.asarray(value)
    except ValueError as e:
        raise refused(f"{name} returned what is no array: {e}", key, "one array of numbers", "setting.wrong-type") from e
    if array.dtype.kind not in "biuf" or (integer and array.dtype.kind == "f"):
        wanted = "an array of integers" if integer else "an array of real numbers"
        what = f"None ({name} has no return?)" if value is None else f"an array of {array.dtype}"
        raise refused(f"{name} returned {what}", key, wanted, "setting.wrong-type")
    if shape is not None and list(array.shape) != list(shape):
        raise refused(f"{name} returned an array of shape {array.shape}", key, f"shape {tuple(shape)}", "setting.wrong-length")
    if integer is None:
        integer = array.dtype.kind != "f"
    return np.require(array, dtype=np.int64 if integer else np.float64, requirements=["C", "A"]).view(np.ndarray)


def numbers(value: ArrayLike, key: str, dims: int, shape: str) -> Floats:
    """Make a read-only copy of an array of finite numbers with `dims` axes; others are refused."""
    import numpy as np

    try:
        array = np.asarray(value)
    except ValueError as e:
        raise refused(f"no array: {e}", key, f"an array of shape {shape}", "setting.wrong-type") from e
    if array.dtype.kind not in "biuf":
        raise refused(f"an array of {array.dtype}", key, "real numbers", "setting.wrong-type")
    if array.ndim != dims:
        raise refused(f"an array of shape {array.shape}", key, f"shape {shape}", "setting.wrong-length")
    array = np.array(array, dtype=np.float64, order="C", copy=True)
    if not np.isfinite(array).all():
        at = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise refused(f"{array[at]} at {list(at)}", key, "finite numbers")
    array.setflags(write=False)
    return array


def shares(value: ArrayLike | None, agents: int) -> Floats | None:
    """Check the weights of agents, and scale them to the sum 1."""
    if value is None:
        return None
    given = numbers(value, "weights", 1, f"({agents},)")
    if given.shape != (agents,):
        raise refused(f"an array of shape {given.shape}", "weights", f"shape ({agents},)", "setting.wrong-length")
    if not (given > 0.0).all():
        agent = int((given <= 0.0).argmax())
        raise refused(f"{given[agent]} (agent {agent})", "weights", "positive weights; leave out agents without one")
    total = float(given.sum())
    if total != total or total == float("inf"):
        raise refused(f"a sum of {total}", "weights", "weights with a finite sum")
    # Weights whose sum is 1 up to rounding stay unchanged.
    if abs(total - 1.0) > 1e-12:
        given = given / total
        given.setflags(write=False)
    return given


class Held(Problem):
    """A problem with data in memory. A saved experiment stores only its hash or name."""

    __slots__ = ("_held", "_hash")

    _held: _fedsa.HeldProblem
    _hash: str

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        assert isinstance(other, Held)
        return bool(self._table() == other._table())

    __hash__ = None  # type: ignore[assignment]


def shown_array(array: Any) -> str:
    """A small array as Python code; of others the shape."""
    return repr(array.tolist()) if array.size <= SHOWN else f"<array of shape {array.shape}>"


class Linear(Held):
    """Linear operators ``b_c - A_c theta`` from arrays.

    Samples have no noise, or additive noise.

    Parameters
    ----------
    A : array of shape (agents, dim, dim)
        The matrices. No agent's matrix may be singular, unless ``allow_singular_agents``.
    b : array of shape (agents, dim)
        The offsets.
    noise : float or mapping, optional
        The standard deviation of white noise on each component of a sample, or the keys ``std``, ``radius``, .. of additive noise in
        experiment files.
    weights : array of shape (agents,), optional
        The agents' shares, positive; divided by their sum. Equal by default.
    allow_singular_agents : bool
        Whether matrices of single agents may be singular, if their mean is not.

    Raises
    ------
    InputError
        When an array has a wrong shape or non-finite numbers.

    Notes
    -----
    The arrays are copied. Theory knows roots, floors, curves and stable steps. :meth:`fedsa.Experiment.to_toml` writes only a hash of the
    arrays.

    Examples
    --------
    >>> import numpy as np, fedsa
    >>> from fedsa import methods, problems
    >>> A = np.array([[[2.0, 0.0], [1.0, 1.0]], [[1.0, -1.0], [0.0, 3.0]]])
    >>> problem = problems.Linear(A, [[1.0, 0.0], [0.0, 1.0]])
    >>> experiment = fedsa.Experiment(problem, methods.SCAFFLSA(0.1, 10), rounds=200, sampling="mean")
    >>> theta = experiment.run().theta("scafflsa", seed=0)
    >>> bool(np.allclose(theta, np.linalg.solve(A.mean(0), [0.5, 0.5])))
    True
    """

    __slots__ = ()
    kind_name = "arrays"

    def __init__(
        self,
        A: ArrayLike,
        b: ArrayLike,
        *,
        noise: float | Mapping[str, Any] | None = None,
        weights: ArrayLike | None = None,
        allow_singular_agents: bool = False,
    ) -> None: ...

    def _set(self, kind: str, given: dict[str, Any]) -> None:
        a = numbers(given["A"], "A", 3, "(agents, dim, dim)")
        n, d = a.shape[0], a.shape[2]
        if a.shape[1] != d or 0 in a.shape:
            raise refused(f"an array of shape {a.shape}", "A", "shape (agents, dim, dim), neither of them 0", "setting.wrong-length")
        b = numbers(given["b"], "b", 2, f"({n}, {d})")
        if b.shape != (n, d):
            raise refused(f"an array of shape {b.shape}", "b", f"shape ({n}, {d}), as A has", "setting.wrong-length")
        given = {**given, "A": a, "b": b}
        arrays = {"A": a, "b": b}
        weights = shares(given.get("weights"), n)
        if weights is not None:
            given["weights"] = arrays["weights"] = weights
        digest = hashlib.sha256()
        for name, array in arrays.items():
            digest.update(f"{name}{array.shape}".encode())
            digest.update(array.tobytes())
        singular = plain_number(given.get("allow_singular_agents", False))
        if not isinstance(singular, bool):
            raise refused(f"{singular!r} is not accepted", "allow_singular_agents", "True or False", "setting.wrong-type")
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_given", given)
        object.__setattr__(self, "_hash", digest.hexdigest()[:32])
        table = self._table()
        del table["kind"]
        object.__setattr__(self, "_held", _fedsa.HeldProblem.arrays(arrays, {"kind": kind, **table}))

    def _table(self) -> dict[str, Any]:
        table: dict[str, Any] = {"kind": self._kind, "content": self._hash}
        noise = self._given.get("noise")
        if noise is not None:
            table["noise"] = plain(noise) if isinstance(noise, Mapping) else {"std": plain(noise)}
        if self._given.get("allow_singular_agents"):
            table["allow_singular_agents"] = True
        return table

    def __repr__(self) -> str:
        parts = [shown_array(self._given["A"]), shown_array(self._given["b"])]
        if self._given.get("noise") is not None:
            parts.append(f"noise={plain(self._given['noise'])!r}")
        if self._given.get("weights") is not None:
            parts.append(f"weights={shown_array(self._given['weights'])}")
        if self._given.get("allow_singular_agents"):
            parts.append("allow_singular_agents=True")
        return f"{type(self).__name__}({', '.join(parts)})"


def count(operator: Any, name: str) -> int:
    """Check an operator's number of agents or components."""
    import operator as operators

    if not hasattr(operator, name):
        raise refused(f"{type(operator).__name__} has no attribute '{name}'", name, f"an attribute {name}: a whole number", "setting.missing-key")
    value = getattr(operator, name)
    try:
        whole = operators.index(value)
    except TypeError:
        what = f"{type(operator).__name__}.{name} is {value!r}"
        raise refused(what, name, "a whole number", "setting.wrong-type") from None
    if not 1 <= whole <= 100_000_000:
        raise refused(f"{type(operator).__name__}.{name} is {whole}", name, "at least 1, and at most 100000000", "setting.out-of-range")
    return whole


class Custom(Held):
    """Operators computed by the methods of an object.

    The engine calls a method once per step for all agents.

    Parameters
    ----------
    operator : Operator
        An object with ``dim``, ``agents`` and a method ``sample``. :class:`fedsa.operators.Operator` lists optional members.

    Raises
    ------
    InputError
        When a required member is missing, or a member cannot be used.

    Notes
    -----
    It works with all first-order methods, links, schedules and samplings of :class:`fedsa.Experiment`, and at nodes of a federation.
    Methods that need losses or Hessians refuse it.

    Exceptions of a callback pass to the caller of the engine. A wrong shape, or a non-finite number at a finite iterate, is an
    :class:`fedsa.InputError`. A callback cannot call the engine. Callbacks run in one thread, whatever :func:`fedsa.set_threads` says.

    Experiment files store only the class and the numbers of agents and components. A run in a folder continues with any object for which
    these are equal.

    Examples
    --------
    >>> import numpy as np, fedsa
    >>> from fedsa import methods, problems
    >>> class Points:
    ...     agents, dim = 3, 2
    ...     points = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    ...     def sample(self, theta, state, rng):
    ...         return self.points[rng.agents] - theta + 0.1 * rng.normal(2)
    ...     def mean(self, theta, agents):
    ...         return self.points[agents] - theta
    >>> experiment = fedsa.Experiment(problems.Custom(Points()), methods.FedLSA(0.1, 5), rounds=100)
    >>> results = experiment.run()
    >>> results.floor("fedlsa").mean < 0.01
    True
    """

    __slots__ = ()
    kind_name = "operator"

    def __init__(self, operator: Any) -> None: ...

    def _set(self, kind: str, given: dict[str, Any]) -> None:
        operator = given["operator"]
        if isinstance(operator, type):
            raise refused(f"the class {operator.__name__}", "operator", f"an object of it: {operator.__name__}(..)", "setting.wrong-type")
        dim, agents = count(operator, "dim"), count(operator, "agents")
        name = type(operator).__name__
        functions = {}
        for function in ("sample", "start", "mean", "jacobian"):
            found = getattr(operator, function, None)
            if found is not None and not callable(found):
                raise refused(f"{name}.{function} is {found!r}", function, "a method", "setting.wrong-type")
            if found is not None:
                functions[function] = found
        if "sample" not in functions:
            raise refused(f"{name} has no method 'sample'", "sample", "a method sample(theta, state, rng)", "setting.missing-key")
        if "jacobian" in functions and "mean" not in functions:
            raise refused(f"{name} has a method 'jacobian' and no 'mean'", "mean", "a method mean(theta, agents)", "setting.missing-key")
        weights = shares(getattr(operator, "weights", None), agents)
        root = getattr(operator, "root", None)
        if root is not None:
            root = numbers(root, "root", 1, f"({dim},)")
            if root.shape != (dim,):
                raise refused(f"an array of shape {root.shape}", "root", f"shape ({dim},)", "setting.wrong-length")
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_given", given)
        object.__setattr__(self, "_hash", json.dumps([f"{type(operator).__module__}.{type(operator).__qualname__}", agents, dim]))
        equal = [1.0 / agents] * agents if weights is None else weights.tolist()
        held = _fedsa.HeldProblem.operator(name, dim, equal, functions, None if root is None else root.tolist(), checked)
        object.__setattr__(self, "_held", held)

    def _table(self) -> dict[str, Any]:
        name, agents, dim = json.loads(self._hash)
        return {"kind": self._kind, "class": name, "agents": agents, "dim": dim}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Custom):
            return NotImplemented
        mine, theirs = self._given["operator"], other._given["operator"]
        return mine is theirs or (type(mine) is type(theirs) and bool(mine == theirs))

    __hash__ = None

    def __repr__(self) -> str:
        return f"Custom({self._given['operator']!r})"
