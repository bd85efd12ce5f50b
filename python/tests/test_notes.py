"""Notes of results: every kind is a warning or an entry of `notes`, and says the same everywhere."""

from __future__ import annotations

import json
import warnings

import fedsa
from fedsa import _fedsa
from fedsa._summary import Note, notes_of, warn_of


def test_a_note_of_every_kind_is_an_entry_of_notes_and_a_warning_where_it_is_severe() -> None:
    kinds = _fedsa.note_kinds()
    summary = json.loads(json.dumps({"notes": [{"code": code, "severity": severity, "text": f"{about} `pca = 3`"} for code, severity, about in kinds]}))
    notes = notes_of(summary)
    assert notes == [Note(code, severity, f"{about} `pca=3`") for code, severity, about in kinds]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of(notes)
    said = [(one.message.code, str(one.message)) for one in caught if isinstance(one.message, fedsa.FedsaWarning)]
    assert said == [(note.code, note.text) for note in notes if note.severity == "warning"] and len(said) == len(caught)
    assert {severity for _, severity, _ in kinds} == {"info", "warning"} and all(one.filename == __file__ for one in caught)
