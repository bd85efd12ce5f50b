"""Traces go to other libraries through the Arrow PyCapsule interface, without a copy."""

from __future__ import annotations

import copy
import gc
import pickle

import numpy as np
import pytest
from needs import needs
from test_experiment import small

import fedsa


@pytest.fixture(scope="module")
def trace() -> fedsa.Table:
    return small().run().trace()


def test_columns_are_numpy_arrays(trace: fedsa.Table) -> None:
    assert trace["round"].dtype == np.int64 and trace["mse"].dtype == np.float64
    assert set(trace["method"]) == {"fedlsa", "scafflsa"}
    assert np.isnan(trace["loss"]).all()
    with pytest.raises(KeyError):
        trace["nothing"]


def test_polars_takes_it(trace: fedsa.Table) -> None:
    polars = needs("polars")
    frame = polars.DataFrame(trace)
    assert frame.columns == trace.columns and len(frame) == len(trace)
    np.testing.assert_array_equal(frame["mse"].to_numpy(), trace["mse"])


def test_pyarrow_and_pandas_take_it(trace: fedsa.Table) -> None:
    pyarrow = needs("pyarrow")
    table = pyarrow.table(trace)
    assert table.column_names == trace.columns
    np.testing.assert_array_equal(table["mse"].to_numpy(), trace["mse"])
    assert table["loss"].null_count == len(trace)
    # The same memory twice: nothing was copied.
    address = [pyarrow.table(trace)["mse"].chunk(0).buffers()[1].address for _ in range(2)]
    assert address[0] == address[1]
    pandas = needs("pandas")
    frame = pandas.DataFrame.from_arrow(trace) if hasattr(pandas.DataFrame, "from_arrow") else table.to_pandas()
    assert frame.shape == (len(trace), len(trace.columns))


def test_capsules_that_nobody_takes_are_freed(trace: fedsa.Table) -> None:
    for _ in range(1000):
        trace.__arrow_c_stream__()
        trace.__arrow_c_schema__()
    gc.collect()
    pyarrow = needs("pyarrow")
    reader = pyarrow.RecordBatchReader.from_stream(trace)
    del reader


def test_a_table_says_what_is_pickled_instead(trace: fedsa.Table) -> None:
    for call in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="a Table is not pickled: pickle the Results"):
            call(trace)
    results = small().run()
    again = pickle.loads(pickle.dumps(results))
    np.testing.assert_array_equal(again.trace()["mse"], results.trace()["mse"])
