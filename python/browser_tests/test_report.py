"""Reports in a browser."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from axe_playwright_python.sync_playwright import Axe
from conftest import FEDSA, SWEEP, Opened, fedsa


@pytest.fixture(scope="module")
def report(folder: Path, sweep: Path) -> Path:
    fedsa("report", sweep, "--out", "sweep.html", cwd=folder)
    return folder / "sweep.html"


def traced(run: Path, method: str, point: str, seed: int, column: str) -> list[float | None]:
    """A column of a seed in `trace.parquet`."""
    table = parquet.read_table(run / "trace.parquet").to_pylist()
    return [row[column] for row in table if (row["method"], row["point"], row["seed"]) == (method, point, seed)]


def told(opened: Opened) -> list[tuple[str, list]]:
    """The values of the legend: names of lines, and of each seed, x and y."""
    rows = opened.page.locator(".legend tbody tr")
    return [(row.locator("label").inner_text().strip(), json.loads(row.locator("td.n").get_attribute("data-values") or "[]")) for row in rows.all()]


def test_a_page_says_what_was_run_without_a_request_or_a_complaint(opened: Opened, report: Path) -> None:
    page = opened.open(report)
    assert page.locator("h1").inner_text() == "A sweep over two keys"
    assert "as expected" in page.locator(".verdicts").inner_text()
    assert page.locator("#results tbody tr").count() == 12
    assert "min = 0.001" in page.locator("#run pre").evaluate("e => e.textContent")
    assert page.locator("#curves canvas").count() == 1
    opened.quiet(report)
    assert report.stat().st_size < 400_000 + 40 * (report.parent / "sweep" / "trace.parquet").stat().st_size


def test_values_at_the_cursor_are_those_of_the_trace(opened: Opened, report: Path, sweep: Path) -> None:
    page = opened.open(report, "#seeds=1&logy=1")
    over = page.locator(".u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box is not None
    for share in (0.1, 0.5, 0.93):
        page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.5 * box["height"])
        seen = 0
        for name, values in told(opened):
            method, point = name.split(" · ")
            for seed, x, y in values:
                rounds, mse = (traced(sweep, method, point, seed, column) for column in ("round", "mse"))
                assert mse[rounds.index(x)] == y
                seen += 1
        assert seen == 36
    opened.quiet(report)


def test_means_over_seeds_are_means_of_the_trace(opened: Opened, report: Path, sweep: Path) -> None:
    page = opened.open(report)
    page.locator(".plot").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    name, values = told(opened)[0]
    method, point = name.split(" · ")
    [(seed, x, y)] = values
    assert seed is None and x > 0
    k = traced(sweep, method, point, 0, "round").index(x)
    mean = sum(traced(sweep, method, point, seed, "mse")[k] for seed in range(3)) / 3
    assert abs(y - mean) <= 1e-14 * mean


def test_lines_axes_and_zoom_can_be_chosen_and_the_address_keeps_them(opened: Opened, report: Path) -> None:
    page = opened.open(report)
    status = page.locator("#curves p[aria-live]")
    assert status.inner_text().startswith("12 lines")
    page.locator(".legend input").first.uncheck()
    assert status.inner_text().startswith("11 lines")
    page.get_by_label("horizontal axis", exact=True).select_option(label="bits sent up with headers, all agents")
    page.get_by_label("logarithmic horizontal axis").check()
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Show everything").click()
    # A page that is loaded again shows the same.
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert status.inner_text().startswith("11 lines")
    assert page.get_by_label("horizontal axis", exact=True).evaluate("e => e.selectedOptions[0].text") == "bits sent up with headers, all agents"
    page.get_by_role("button", name="None").click()
    assert status.inner_text().startswith("0 lines")
    page.get_by_role("button", name="All").click()
    assert status.inner_text().startswith("12 lines")
    page.reload()
    page.wait_for_selector("html[data-ready]", state="attached")
    assert status.inner_text().startswith("12 lines")
    box = page.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 150, steps=4)
    page.mouse.up()
    opened.quiet(report)


def test_data_of_the_curves_are_saved_with_all_digits(opened: Opened, report: Path, sweep: Path, tmp_path: Path) -> None:
    page = opened.open(report)
    with page.expect_download() as download:
        page.get_by_role("button", name="Save these data").click()
    download.value.save_as(tmp_path / "curves.csv")
    rows = list(csv.DictReader((tmp_path / "curves.csv").open(newline="")))
    table = parquet.read_table(sweep / "trace.parquet").to_pylist()
    assert len(rows) == len(table)
    for row, expected in zip(rows, table):
        assert (row["method"], row["point"], int(row["seed"])) == (expected["method"], expected["point"], expected["seed"])
        assert float(row["round"]) == expected["round"] and float(row["mse"]) == expected["mse"]


def test_tables_sort_by_numbers_and_maps_show_the_sweep(opened: Opened, report: Path, sweep: Path) -> None:
    page = opened.open(report)
    head = page.locator("#results th", has_text="mean of the last fifth")
    index = head.evaluate("e => e.cellIndex")
    head.locator("button").click()
    values = [float(v) for v in page.locator(f"#results tbody td:nth-child({index + 1})").evaluate_all("cells => cells.map(c => c.dataset.v)")]
    assert values == sorted(values) and head.get_attribute("aria-sort") == "ascending"
    summary = json.loads((sweep / "summary.json").read_text())
    floors = {(r["coordinates"]["step_size"], r["coordinates"]["local_steps"]): r["floor_mean"] for r in summary["results"] if r["method"] == "FedLSA"}
    # The pictures of the maps need no scripts; values at the pointer are those of the summary.
    svg = page.locator("#maps figure.maps:not([hidden]) svg[data-w]").first
    svg.scroll_into_view_if_needed()
    box, size = svg.bounding_box(), svg.evaluate("e => ({...e.dataset, width: e.viewBox.baseVal.width})")
    assert box is not None
    scale = box["width"] / size["width"]
    for i, x in enumerate((0.01, 0.05, 0.1)):
        for j, y in enumerate((5, 1)):
            place = (float(size["left"]) + (i + 0.5) * float(size["w"]), float(size["top"]) + (j + 0.5) * float(size["h"]))
            page.mouse.move(box["x"] + scale * place[0], box["y"] + scale * place[1])
            assert float(page.locator(".told").get_attribute("data-value") or "nan") == floors[x, y]
    opened.quiet(report)


def test_the_command_of_a_page_draws_what_it_shows(opened: Opened, report: Path, sweep: Path) -> None:
    page = opened.open(report, "#x=bits_up&logy=0")
    page.locator("#again summary").click()
    page.locator("#again select").select_option("ieee")
    for name in page.locator(".legend tbody label").all():
        if name.inner_text().strip().startswith("SCAFFLSA"):
            name.locator("input").uncheck()
    command = shlex.split(page.locator("#again li code").inner_text())
    assert command[0] == "fedsa" and "y_log = false" in command[-1] and 'methods = ["FedLSA"]' in command[-1]
    copy = report.parent / "copy"
    shutil.copytree(sweep, copy)
    command = [str(copy) if word == str(sweep) else word for word in command]
    fedsa(*command[1:], cwd=report.parent)
    svg = (copy / "figure.svg").read_text()
    assert 'width="252pt"' in svg and "FedLSA" in svg and ">SCAFFLSA" not in svg and "bits" in svg
    opened.quiet(report)


def test_the_page_is_accessible_in_light_and_dark_narrow_and_wide(opened: Opened, report: Path) -> None:
    for scheme in ("light", "dark"):
        opened.page.emulate_media(color_scheme=scheme)
        for width in (360, 2000):
            opened.page.set_viewport_size({"width": width, "height": 800})
            page = opened.open(report)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            found = Axe().run(page).response["violations"]
            serious = [(v["id"], [n["target"] for n in v["nodes"]][:3]) for v in found if v["impact"] in ("serious", "critical")]
            assert serious == [], (scheme, width)


def test_it_prints_with_pictures_and_reads_without_scripts(chromium, opened: Opened, report: Path) -> None:
    page = opened.open(report)
    printed = page.pdf()
    assert printed[:5] == b"%PDF-"
    assert not page.locator("details.pictures").evaluate("e => e.open")
    page.locator("details.pictures").evaluate("e => e.remove()")
    assert len(printed) > 1.2 * len(page.pdf())
    context = chromium.new_context(java_script_enabled=False)
    plain = context.new_page()
    plain.goto(report.as_uri())
    assert plain.locator(".picture img").first.bounding_box()["width"] > 300
    assert plain.locator("#results tbody tr").count() == 12
    context.close()


# Labels that turn the direction of text are refused by the program; a description is not.
HOSTILE = ["</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>", "x" * 10_000]


def test_hostile_labels_are_text(opened: Opened, folder: Path) -> None:
    methods = "".join(f'[[method]]\nkind = "fedlsa"\nlabel = {json.dumps(label)}\nstep_size = 0.1\nlocal_steps = 2\n' for label in HOSTILE)
    text = f'id = "hostile"\ntitle = {json.dumps(HOSTILE[0])}\ndescription = "\\u202egnp.exe"\n[problem]\nkind = "garnet"\nagents = 2\n{methods}[run]\nrounds = 5\n'
    (folder / "hostile.toml").write_text(text)
    fedsa("run", "hostile.toml", "--out", "hostile", cwd=folder)
    fedsa("report", "hostile", "--out", "hostile.html", cwd=folder)
    opened.page.on("dialog", lambda dialog: pytest.fail(dialog.message))
    page = opened.open(folder / "hostile.html")
    assert page.locator("h1").inner_text() == HOSTILE[0]
    assert page.locator("script").count() == 3 and page.locator("img[src=x]").count() == 0
    assert "\u202e" not in page.locator("body").inner_text()
    opened.quiet(folder / "hostile.html")


def test_many_curves_are_usable(opened: Opened, folder: Path) -> None:
    """200 curves of 2,000 points."""
    file = folder / "many.toml"
    values = ", ".join(str(0.001 * (k + 1)) for k in range(100))
    file.write_text(
        f'id = "many"\n[problem]\nkind = "garnet"\nagents = 2\n[[method]]\nkind = "fedlsa"\nstep_size = 0.1\nlocal_steps = 1\n[[method]]\nkind = "scafflsa"\nstep_size = 0.1\nlocal_steps = 1\n'
        f'[run]\nrounds = 2000\nrecord = {{ points = 2000 }}\n[[sweep]]\nkey = "method.*.step_size"\nvalues = [{values}]\n'
    )
    said = subprocess.run([FEDSA, "run", file, "--out", "many"], cwd=folder, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    fedsa("report", "many", "--out", "many.html", cwd=folder)
    page = opened.open(folder / "many.html")
    page.get_by_role("button", name="All").click()
    assert page.locator("#curves p[aria-live]").inner_text().startswith("200 lines")
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    print(f"first paint after {paint:.0f} ms, {(folder / 'many.html').stat().st_size / 1e6:.1f} MB")
    opened.quiet(folder / "many.html")


def test_long_tables_sort_and_search_all_rows_and_show_some(opened: Opened, folder: Path) -> None:
    values = ", ".join(str(0.001 * (k + 1)) for k in range(400))
    (folder / "long-table.toml").write_text(
        f'id = "rows"\n[problem]\nkind = "garnet"\nagents = 2\n[[method]]\nkind = "fedlsa"\nstep_size = 0.1\nlocal_steps = 1\n[run]\nrounds = 20\n'
        f'[[sweep]]\nkey = "method.*.step_size"\nvalues = [{values}]\n'
    )
    fedsa("run", "long-table.toml", "--out", "rows", cwd=folder)
    fedsa("report", "rows", "--out", "rows.html", cwd=folder)
    page = opened.open(folder / "rows.html")
    results = json.loads((folder / "rows" / "summary.json").read_text())["results"]
    rows = page.locator("#results tbody tr")
    assert rows.count() == 100 and "100 of 400 rows" in page.locator("#results .controls").inner_text()
    # All rows are sorted, not those that are shown.
    head = page.locator("#results th", has_text="error at the end")
    index = head.evaluate("e => e.cellIndex")
    head.locator("button").click()
    cells = page.locator(f"#results tbody td:nth-child({index + 1})")
    shown = [float(v) for v in cells.evaluate_all("cells => cells.map(c => c.dataset.v)")]
    assert shown == pytest.approx(sorted(result["final_mean"] for result in results)[:100], rel=1e-8)
    page.get_by_role("button", name="400 more").first.click()
    assert rows.count() == 400
    page.locator("#results input[type=search]").fill("step_size=0.25")
    assert {"0.25" in text for text in rows.all_inner_texts()} == {True}
    assert "with this text" in page.locator("#results .controls").inner_text()
    opened.quiet(folder / "rows.html")


def test_a_run_that_diverged_says_so_first_and_hides_no_other_line(opened: Opened, folder: Path) -> None:
    text = SWEEP.split("[[sweep]]")[0].replace("step_size = 0.1", "step_size = 500.0", 1).replace("rounds = 60", "rounds = 400")
    (folder / "diverged.toml").write_text(text)
    fedsa("run", "diverged.toml", "--out", "diverged", "--force", cwd=folder, status=1)
    fedsa("report", "diverged", "--out", "diverged.html", cwd=folder)
    page = opened.open(folder / "diverged.html")
    first = page.locator(".verdicts").inner_text()
    assert "FedLSA diverged first in round" in first and "its step size is too large" in first and "stable up to step_size" in first
    status = page.locator("#curves p[aria-live]")
    assert "are cut" in status.inner_text()
    page.get_by_role("button", name="Show everything").click()
    assert "are cut" not in status.inner_text()
    # A line that has ended says where, and the heading is the round at the cursor.
    box = page.locator(".u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.98 * box["width"], box["y"] + 50)
    assert page.locator(".legend th").nth(1).inner_text() in ("at 398", "at 400", "at 396", "at 394", "at 392")
    ended, lasts = page.locator(".legend tbody td.n").all_inner_texts()
    assert "(last, at " in ended and "last" not in lasts
    # The keyboard reaches the end of the line that goes on.
    page.locator(".plot").focus()
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    assert page.locator(".legend th").nth(1).inner_text() == "at 400"
    opened.quiet(folder / "diverged.html")


def test_a_curve_of_one_value_has_a_marker(opened: Opened, folder: Path) -> None:
    text = SWEEP.split("[[sweep]]")[0].split("[[method]]")[0] + '[[method]]\nkind = "fedlsa"\nlabel = "FedLSA"\nstep_size = 0.1\nlocal_steps = 5\n[run]\nrounds = 3\nrecord = { every = 5 }\n'
    (folder / "one.toml").write_text(text)
    fedsa("run", "one.toml", "--out", "one", cwd=folder)
    fedsa("report", "one", "--out", "one.html", cwd=folder)
    page = opened.open(folder / "one.html", "#x=bits_up&logx=1")
    # Of two records, the one of the start has no bits, and no place on a logarithmic axis.
    colors = """() => {
      const canvas = document.querySelector("#curves canvas"), image = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      let count = 0;
      for (let i = 0; i < image.length; i += 4) if (image[i] === 0 && image[i + 1] === 0x72 && image[i + 2] === 0xb2) count++;
      return count;
    }"""
    assert page.evaluate(colors) > 20
    opened.quiet(folder / "one.html")


def test_a_run_that_goes_on_is_shown_as_far_as_it_is(opened: Opened, folder: Path) -> None:
    (folder / "long.toml").write_text(SWEEP.replace("rounds = 60", "rounds = 100000000\nrecord = { every = 100000 }").replace('id = "sweep"', 'id = "long"'))
    run = subprocess.Popen([FEDSA, "run", "long.toml", "--out", "long", "--progress", "none"], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        ends = time.monotonic() + 60
        lines = folder / "long" / "trace.jsonl"
        while not lines.exists() or lines.read_bytes().count(b"\n") < 40:
            assert time.monotonic() < ends and run.poll() is None
            time.sleep(0.1)
        fedsa("report", "long", "--out", "long.html", cwd=folder)
    finally:
        run.terminate()
        run.wait(60)
    page = opened.open(folder / "long.html")
    assert "under way" in page.locator(".verdicts").inner_text()
    assert page.locator("#curves canvas").count() == 1
    opened.quiet(folder / "long.html")


def test_two_runs_are_beside_each_other(opened: Opened, folder: Path, sweep: Path) -> None:
    (folder / "other.toml").write_text(SWEEP.replace("seed = 1", "seed = 2"))
    fedsa("run", "other.toml", "--out", "other", cwd=folder)
    fedsa("report", "sweep", "other", "--out", "both.html", cwd=folder)
    page = opened.open(folder / "both.html")
    assert page.locator("#differences tbody tr").all_inner_texts() == ["problem.seed\t1\t2"]
    assert page.locator("#results tbody tr").count() == 24
    opened.quiet(folder / "both.html")


def test_parts_of_a_sweep_are_said_to_be_parts(opened: Opened, folder: Path, sweep: Path) -> None:
    fedsa("run", "sweep.toml", "--points", "0", "--out", "parts", cwd=folder)
    fedsa("report", "parts", "--out", "parts.html", cwd=folder)
    first = opened.open(folder / "parts.html").locator(".verdicts").inner_text()
    assert "parts of a sweep" in first and "fedsa merge parts" in first and "--resume" not in first
