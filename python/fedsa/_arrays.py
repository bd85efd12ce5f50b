"""Conversion of arrays, data frames and sparse matrices to arrays of the engine.

Accepted input:

- NumPy arrays, and all that NumPy converts (lists, memory maps, other byte orders, strides)
- data frames: pandas, polars, pyarrow, and objects with ``to_numpy`` or the Arrow PyCapsule interface
- SciPy sparse matrices

Of these packages only NumPy is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsa import _fedsa
from fedsa._warn import warn
from fedsa.errors import FedsaWarning, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def refused(what: str, key: str, help: str, code: str = "data.bad-value") -> InputError:
    """Make the error about an array."""
    return InputError(what, code, key, help)


def is_sparse(x: Any) -> bool:
    """Whether `x` is a SciPy sparse matrix or array."""
    return hasattr(x, "tocsr") and hasattr(x, "nnz")


def is_frame(x: Any) -> bool:
    """Whether `x` is a data frame, with named columns.

    Raises
    ------
    InputError
        When `x` is a lazy frame, which has no rows yet.
    """
    if hasattr(x, "collect_schema") and hasattr(x, "collect"):
        raise refused(f"a {type(x).__name__}, which has no rows yet", "", "a data frame: .collect() makes one of it", "setting.wrong-type")
    return not isinstance(x, np.ndarray) and (hasattr(x, "columns") or hasattr(x, "column_names")) and not is_sparse(x)


def is_table(x: Any) -> bool:
    """Whether `x` is a data frame, or another table with the Arrow PyCapsule interface."""
    # Single columns have the interface and `to_numpy`.
    return is_frame(x) or (hasattr(x, "__arrow_c_stream__") and not hasattr(x, "to_numpy") and not isinstance(x, np.ndarray))


def table(frame: Any, key: str) -> _fedsa.Columns:
    """Pass the typed columns of a data frame to the engine, which treats them like columns of files.

    Raises
    ------
    InputError
        When a column cannot be passed on.
    """
    names = [str(name) for name in names_of(frame)] if is_frame(frame) else []
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise refused(f"two columns are called `{twice[0]}`", key, "columns with different names", "data.bad-value")
    # The index of a pandas frame is not a column.
    plain = frame.reset_index(drop=True) if hasattr(frame, "reset_index") else frame
    if hasattr(plain, "__arrow_c_stream__"):
        try:
            stream = plain.__arrow_c_stream__()
        except Exception as e:
            # pandas exports through PyArrow, which rejects some pandas types.
            if not names:
                raise refused(f"an Arrow stream that cannot be read: {e}", key, "a table, or a stream that nobody has read yet", "setting.wrong-type") from e
        else:
            return _fedsa.Columns.of_stream(stream)
    return _fedsa.Columns.of_arrays([(name, column(plain[one], f"{key}[{name!r}]")) for name, one in zip(names, names_of(frame))])


def column(x: Any, key: str) -> NDArray[Any] | list[str | None]:
    """Convert a column for the engine: integers, other numbers, or texts with ``None`` for missing values."""
    array = array_of(x, key)
    if array.dtype.kind in "UST":
        return [str(one) for one in array]
    if array.dtype.kind == "O" and any(isinstance(one, str) for one in array):
        missing = [one is None or one != one or type(one).__name__ == "NAType" for one in array]
        if all(lacks or isinstance(one, str) for lacks, one in zip(missing, array)):
            return [None if lacks else one for lacks, one in zip(missing, array)]
        raise refused("texts and other objects", key, "texts alone, or numbers alone", "setting.wrong-type")
    if array.dtype.kind in "iu" and array.dtype != np.uint64:
        return np.ascontiguousarray(array, dtype=np.int64)
    return numbers(array, key)


def array_of(x: Any, key: str) -> NDArray[Any]:
    """Convert numbers or texts to an array of any type and shape.

    Raises
    ------
    InputError
        When its rows have different lengths, or entries are masked.
    """
    if isinstance(x, np.ma.MaskedArray) and np.any(x.mask):
        raise refused("masked entries", key, "numbers in their place, with .filled(..), or no such rows")
    if hasattr(x, "to_numpy"):
        # By default Arrow refuses conversions that need a copy.
        is_arrow = type(x).__module__.partition(".")[0] == "pyarrow"
        x = x.to_numpy(zero_copy_only=False) if is_arrow else x.to_numpy()
    try:
        array = np.asarray(x)
    except ValueError as e:
        raise refused(f"rows of different lengths: {e}", key, "rows of one length", "setting.wrong-type") from e
    except (TypeError, RuntimeError) as e:
        raise refused(f"an object of the type {type(x).__name__}, of which NumPy makes no array: {e}", key, "an array of NumPy", "setting.wrong-type") from e
    if array.ndim == 0 and array.dtype == object and x is not None:
        help = "an array of NumPy; tensors of PyTorch have .detach().cpu().numpy()"
        raise refused(f"an object of the type {type(x).__name__}, of which NumPy makes no array", key, help, "setting.wrong-type")
    return array


def names_of(frame: Any) -> list[Any]:
    """The names of the columns of a data frame."""
    return list(frame.column_names if hasattr(frame, "column_names") else frame.columns)


def feature_names(x: Any, rows: Any) -> NDArray[np.object_] | None:
    """The column names of a data frame if all are texts, otherwise ``None``; `rows` is the result of :func:`matrix` for it."""
    if not is_frame(x):
        return np.array(rows.names(), dtype=object) if isinstance(rows, _fedsa.Columns) else None
    names = names_of(x)
    texts = [isinstance(name, str) for name in names]
    if not names or not any(texts):
        return None
    if not all(texts):
        kinds = sorted({type(name).__name__ for name in names})
        raise TypeError(
            "Feature names are only supported if all input features have string names, but your input has "
            f"{kinds} as feature name / column name types: convert all of them to texts"
        )
    return np.array(names, dtype=object)


def numbers(x: Any, key: str) -> NDArray[np.float64]:
    """Convert to float64 in C order, without a copy if the array has this form already."""
    array = array_of(x, key)
    if array.dtype.kind == "c":
        raise refused(f"Complex data not supported: {array.dtype} in {key}", key, "real numbers")
    if array.dtype.kind in "mM":
        raise refused(f"dates and times are not accepted: {array.dtype} in {key}", key, "numbers: seconds since a date, for example")
    try:
        # A subclass becomes a plain array; other byte orders, types and strides are copied.
        return np.require(array, dtype=np.float64, requirements=["C", "A"]).view(np.ndarray)
    except TypeError as e:
        # scikit-learn expects a TypeError for objects inside an array.
        if array.ndim > 0:
            raise
        raise refused(f"an object of the type {type(x).__name__}", key, "an array of numbers", "setting.wrong-type") from e
    except ValueError as e:
        raise refused(str(e), key, "numbers; columns of text in a data frame, where they are categories", "setting.wrong-type") from e


def finite(array: NDArray[np.float64], name: str) -> None:
    """Refuse NaN and infinities."""
    # Fast path: a finite sum proves that all numbers are finite. The sum of finite numbers may still overflow.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum()):
            return
    bad = ~np.isfinite(array)
    if not bad.any():
        return
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    place = f"row {at[0]}" + (f", column {at[1]}" if len(at) > 1 else "")
    key = name.split()[-1]
    if np.isnan(array).any():
        help = "finite numbers: leave such rows out, or put a number in, as scikit-learn's SimpleImputer does"
        raise refused(f"{name} contains NaN, first at {place}." if np.isnan(array[at]) else f"{name} contains NaN.", key, help)
    raise refused(f"{name} contains infinity or a value too large for dtype('float64'), first at {place}.", key, "finite numbers")


def matrix(x: Any, key: str = "X", owner: str = "") -> Any:
    """Convert rows (n, d) for the engine: float64 in C order, the parts of CSR, or the columns of a data frame."""
    if is_sparse(x):
        return sparse(x, key)
    if is_table(x):
        columns = table(x, key)
        counted((len(columns), len(columns.names())), owner)
        return columns
    array = numbers(x, key)
    if array.ndim != 2:
        shape = "a scalar" if array.ndim == 0 else f"{array.ndim}D array"
        what = f"Expected 2D array, got {shape} instead: shape {array.shape}"
        help = "Reshape your data either using array.reshape(-1, 1) if it has a single feature or array.reshape(1, -1) if it is a single row"
        raise refused(f"{what}. {help}." if array.ndim < 2 else what, key, help, "setting.wrong-type")
    counted(array.shape, owner)
    finite(array, f"Input {key}")
    return array


def counted(shape: Sequence[int], owner: str) -> None:
    """Refuse an array without rows or columns."""
    by = f" by {owner}" if owner else ""
    if shape[0] < 1:
        raise refused(f"Found array with 0 sample(s) (shape={tuple(shape)}) while a minimum of 1 is required{by}.", "X", "at least one row")
    if shape[1] < 1:
        raise refused(f"Found array with 0 feature(s) (shape={tuple(shape)}) while a minimum of 1 is required{by}.", "X", "at least one column")


def sparse(x: Any, key: str) -> tuple[Any, ...]:
    """The parts of CSR: starts, columns, numbers, and the number of columns."""
    if getattr(x, "ndim", 2) != 2:
        raise refused(f"Expected 2D array, got a sparse array of {x.ndim} dimensions. Reshape your data.", key, "a sparse matrix (n, d)")
    if x.dtype.kind == "c":
        raise refused(f"Complex data not supported: {x.dtype} in {key}", key, "real numbers")
    counted(x.shape, "")
    check_places(x, key)
    rows = x.tocsr()
    if not rows.has_canonical_format:
        # Duplicate entries are summed, in a copy.
        rows = rows.copy()
        rows.sum_duplicates()
    values = numbers(rows.data, key)
    finite(values, f"Input {key}")
    starts, index = (np.ascontiguousarray(part, dtype=np.int64) for part in (rows.indptr, rows.indices))
    return starts, index, values, int(rows.shape[1])


def check_places(x: Any, key: str) -> None:
    """Refuse CSR and CSC matrices with indices outside their arrays, because SciPy does not check them."""
    if getattr(x, "format", None) not in ("csr", "csc"):
        return
    n, d = x.shape if x.format == "csr" else x.shape[::-1]
    starts, index, count = x.indptr, x.indices, min(len(x.indices), len(x.data))
    help = "a matrix whose check_format() finds nothing"
    if len(starts) != n + 1 or starts[0] != 0 or (np.diff(starts) < 0).any():
        raise refused(f"its indptr is not {n + 1} numbers from 0 on that never fall", key, help)
    if starts[-1] > count:
        raise refused(f"its indptr ends at {starts[-1]}, and it has {count} entries", key, help)
    used = index[: starts[-1]]
    if len(used) and (used.min() < 0 or used.max() >= d):
        what = "column" if x.format == "csr" else "row"
        raise refused(f"an entry of {what} {used.min() if used.min() < 0 else used.max()} of {d} {what}s", key, help)


def size(rows: Any) -> tuple[int, int]:
    """The numbers of rows and columns of a result of :func:`matrix`."""
    if isinstance(rows, _fedsa.Columns):
        return len(rows), len(rows.names())
    return (len(rows[0]) - 1, rows[3]) if isinstance(rows, tuple) else rows.shape


def taken(rows: Any, keep: NDArray[np.bool_]) -> Any:
    """The rows where `keep` is true."""
    if isinstance(rows, _fedsa.Columns):
        return rows.filtered(keep)
    if not isinstance(rows, tuple):
        return rows[keep]
    starts, index, values, d = rows
    lengths = np.diff(starts)
    entries = np.repeat(keep, lengths)
    return np.concatenate([[0], np.cumsum(lengths[keep])]).astype(np.int64), index[entries], values[entries], d


def scale(rows: Any) -> float:
    """The root mean square of the rows' norms."""
    values = (rows[2] if isinstance(rows, tuple) else rows).ravel()
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.dot(values, values) / size(rows)[0]))


def is_scalar(x: Any) -> bool:
    """Whether `x` is one value, and not an array or a list."""
    return isinstance(x, (str, bytes)) or not (hasattr(x, "__len__") or hasattr(x, "__array__") or hasattr(x, "to_numpy")) or getattr(x, "shape", None) == ()


def vector(x: Any, key: str, n: int) -> NDArray[Any]:
    """Convert to a vector of n entries of any type. A column (n, 1) is accepted with a warning."""
    array = array_of(x, key)
    if array.ndim == 2 and array.shape[1] == 1:
        warn_column(key)
        array = array.ravel()
    if array.ndim != 1:
        raise refused(f"{key} should be a 1d array, got an array of shape {array.shape} instead.", key, f"{n} entries", "setting.wrong-type")
    if len(array) != n:
        help = "an entry for each row of X"
        raise refused(f"Found input variables with inconsistent numbers of samples: {n} rows of X, and {len(array)} of {key}", key, help)
    return array


def warn_column(key: str) -> None:
    """Warn about a column where a vector is expected, as scikit-learn does."""
    text = f"A column-vector {key} was passed when a 1d array was expected. Please change the shape of {key} to (n_samples,), for example using ravel()."
    warn(text, foreign("sklearn.exceptions", "DataConversionWarning", FedsaWarning))


def foreign(module: str, name: str, otherwise: Any) -> Any:
    """A class of a package if the package has been imported; `otherwise` if not."""
    loaded = sys.modules.get(module)
    return getattr(loaded, name, otherwise) if loaded else otherwise
