// The page's curves, maps and tables. Everything it shows is in the page; it asks nobody for anything.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const palettes = {
    light: ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#a89c00"],
    dark: ["#4c9fea", "#f07c35", "#2ac498", "#e395c3", "#f5b83d", "#a9dcfb", "#f0f0f0", "#cfc445"],
  };
  const dashes = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  // What colours look like when eight are used up: other dashes, so that lines differ without colours too.
  const lookOf = (i) => ({ color: i % 8, dash: dashes[(i + Math.floor(i / 8)) % 4] });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // ---- small helpers ----
  const make = (name, attributes = {}, ...inside) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (value === true) element.setAttribute(key, "");
      else if (value !== false && value != null) element.setAttribute(key, value);
    }
    element.append(...inside);
    return element;
  };
  const draw = (name, attributes = {}, ...inside) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...inside);
    return element;
  };
  // Labels cannot turn the direction of what is beside them.
  const label = (text, most = 90) => {
    const plain = String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
      (c) => "\u27e8U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e9");
    return plain.length > most ? plain.slice(0, most - 1) + "\u2026" : plain;
  };
  const short = (x) => {
    if (x == null || Number.isNaN(x)) return "";
    const size = Math.abs(x);
    if (x === 0 || (size >= 1e-3 && size < 1e7)) return String(Number(x.toPrecision(6)));
    return x.toExponential(4).replace("e+", "e");
  };
  const store = (blob, name) => {
    const link = make("a", { href: URL.createObjectURL(blob), download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };

  // ---- what was chosen, kept in the address: a page that loads itself again, or is sent on, shows the same ----
  const chosen = (() => {
    const read = new URLSearchParams(location.hash.slice(1));
    return {
      get: (key) => read.get(key),
      set: (key, value) => {
        if (value == null) read.delete(key); else read.set(key, value);
        try { history.replaceState(null, "", "#" + read); } catch { /* a page without an address */ }
      },
    };
  })();

  // ---- columns ----
  const decoded = new Map();
  const column = (i) => {
    if (!decoded.has(i)) {
      const text = atob(data.arrays[i]);
      const bytes = new Uint8Array(text.length);
      for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
      const view = new DataView(bytes.buffer);
      decoded.set(i, Float64Array.from({ length: bytes.length / 8 }, (_, k) => view.getFloat64(8 * k, true)));
    }
    return decoded.get(i);
  };

  // ---- sorting tables ----
  // What has no value comes last, whichever way.
  const ordered = (x, y, upwards) => {
    const [left, right] = [x === "" || Number.isNaN(x), y === "" || Number.isNaN(y)];
    if (left || right) return left - right;
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), undefined, { numeric: true });
    return upwards ? order : -order;
  };
  const sortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    const data = table.parentElement.querySelector("script.rows");
    const sortRows = data ? longTable(table, data) : (j, upwards) => {
      const valueOf = ({ cells: { [j]: cell } }) => (cell.dataset.v !== undefined ? Number(cell.dataset.v) : cell.textContent);
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => ordered(valueOf(a), valueOf(b), upwards)));
    };
    heads.forEach((head, j) => {
      const sort = () => {
        const upwards = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", upwards ? "ascending" : "descending");
        sortRows(j, upwards);
      };
      const button = make("button", { type: "button", onclick: sort }, ...head.childNodes);
      head.replaceChildren(button);
    });
  };
  // A long table has its rows as data, and the first of them in the page: it is sorted and searched as a whole, and shows more when asked.
  const longTable = (table, data) => {
    const [first, step] = [table.tBodies[0].rows.length, 400];
    let columns = null, order = null, wanted = "", most = first;
    const cellOf = (j, i) => columns[j].cells[columns[j].at ? columns[j].at[i] : i];
    const read = () => {
      if (columns) return;
      columns = JSON.parse(data.textContent);
      order = Array.from({ length: (columns[0].at ?? columns[0].cells).length }, (_, i) => i);
    };
    const textOf = (cell) => (cell == null ? "" : Array.isArray(cell) ? cell[1] : cell);
    const valueOf = (cell) => (Array.isArray(cell) && typeof cell[0] === "number" ? cell[0] : textOf(cell));
    const element = (cell) => {
      if (cell == null) return make("td");
      if (!Array.isArray(cell)) return make("td", cell.length > 48 ? { class: "t" } : {}, cell);
      return typeof cell[0] === "string" ? make("td", {}, make("span", { class: `tag ${cell[0]}` }, cell[1])) : make("td", { class: "n", "data-v": cell[0] }, cell[1]);
    };
    const show = () => {
      read();
      const found = wanted === "" ? order : order.filter((i) => columns.some((_, j) => textOf(cellOf(j, i)).toLowerCase().includes(wanted)));
      table.tBodies[0].replaceChildren(...found.slice(0, most).map((i) => make("tr", {}, ...columns.map((_, j) => element(cellOf(j, i))))));
      said.textContent = `${Math.min(most, found.length)} of ${found.length} rows${wanted === "" ? "" : " with this text"}`;
      more.hidden = most >= found.length;
    };
    const said = make("span", { class: "small", "aria-live": "polite" });
    const more = make("button", { type: "button", onclick: () => { most += step; show(); } }, `${step} more`);
    const search = make("input", { type: "search", placeholder: "part of a row", "aria-label": "Show only rows that contain this", oninput: (event) => {
      [wanted, most] = [event.target.value.toLowerCase(), first];
      show();
    } });
    said.textContent = table.parentElement.nextElementSibling.textContent.split(";")[0].toLowerCase().replace("the first ", "");
    table.parentElement.nextElementSibling.replaceWith(make("div", { class: "controls" }, search, said, more));
    return (j, upwards) => {
      read();
      most = first;
      order.sort((a, b) => ordered(valueOf(cellOf(j, a)), valueOf(cellOf(j, b)), upwards));
      show();
    };
  };
  document.querySelectorAll("table.sortable").forEach(sortable);

  // ---- curves ----
  const curves = () => {
    const root = document.getElementById("curves");
    if (!root || data.series.length === 0 || data.metrics.length === 0) return;
    const several = data.runs.length > 1;
    // A group is a method at a point of a run, with its seeds.
    const groups = [];
    const byName = new Map();
    for (const series of data.series) {
      const key = JSON.stringify([series.run, series.method, series.point]);
      if (!byName.has(key)) {
        byName.set(key, groups.length);
        const name = [several ? data.runs[series.run] : "", series.method, series.point].filter((part) => part !== "").join(" \u00b7 ");
        groups.push({ name, run: series.run, method: series.method, point: series.point, seeds: [], shown: true });
      }
      groups[byName.get(key)].seeds.push(series);
    }
    // Of many lines, some are shown at first: all over the sweep, not at one value of a key that varies fast, and the best of each method.
    const points = [...new Set(groups.map((group) => JSON.stringify([group.run, group.point])))];
    const place = new Map(points.map((point, i) => [point, i]));
    const share = 24 / groups.length;
    groups.forEach((group) => { group.shown = share >= 1 || (place.get(JSON.stringify([group.run, group.point])) * 0.6180339887498949) % 1 < share; });
    // The same method has the same colour at one point, or over the points of one method.
    groups.forEach((group, i) => Object.assign(group, lookOf(i)));
    const hidden = chosen.get("hide");
    if (hidden != null) {
      const set = new Set(hidden === "" ? [] : hidden.split(",").map(Number));
      groups.forEach((group, i) => { group.shown = !set.has(i); });
    }

    const axisOf = (key) => Math.max(0, data.axes.findIndex((axis) => axis.key === key));
    const metricOf = (key) => data.metrics.findIndex((metric) => metric.key === key);
    const positive = (m) => data.series.every((series) => column(series.y[m]).every((y) => !(y < 0)));
    const firstMetric = Math.max(0, ["mse", "error", "residual"].map(metricOf).find((m) => m >= 0) ?? 0);
    if (hidden == null && share < 1) {
      const endOf = (group) => group.seeds.reduce((sum, series) => sum + (column(series.y[firstMetric]).at(-1) ?? NaN), 0) / group.seeds.length;
      const best = new Map();
      for (const group of groups) {
        const [key, end] = [JSON.stringify([group.run, group.method]), endOf(group)];
        if (Number.isFinite(end) && !(best.get(key)?.end <= end)) best.set(key, { end, group });
      }
      for (const { group } of best.values()) group.shown = true;
    }
    const state = {
      x: chosen.get("x") != null ? axisOf(chosen.get("x")) : axisOf("round"),
      y: metricOf(chosen.get("y")) >= 0 ? metricOf(chosen.get("y")) : firstMetric,
      logX: chosen.get("logx") === "1",
      logY: chosen.get("logy") != null ? chosen.get("logy") === "1" : positive(firstMetric),
      seeds: chosen.get("seeds") === "1",
      bands: chosen.get("bands") !== "0",
      levels: chosen.get("levels") !== "0",
    };

    const rounds = data.axes.findIndex((axis) => axis.key === "round");
    // Where a seed has a record of this round, or -1: one that ended early has its last record in a round of its own.
    const recordOf = (series, round) => {
      const of = column(series.x[rounds]);
      let [low, high] = [0, of.length];
      while (low < high) { const middle = (low + high) >> 1; if (of[middle] < round) low = middle + 1; else high = middle; }
      return of[low] === round ? low : -1;
    };
    // The lines of a group: x, y, and the edges of a band. Seeds are averaged in the rounds that all of them have recorded.
    const lines = (group) => {
      const of = (series) => ({ x: column(series.x[state.x]), y: column(series.y[state.y]), seed: series.seed });
      const all = group.seeds.map(of);
      if (state.seeds || all.length === 1) return all.map((line) => ({ ...line, group }));
      const n = all.length;
      const common = [];
      for (let k = 0; k < all[0].x.length; k++) {
        const places = rounds < 0 ? all.map(() => k) : group.seeds.map((series) => recordOf(series, column(group.seeds[0].x[rounds])[k]));
        if (places.every((place, i) => place >= 0 && place < all[i].x.length)) common.push(places);
      }
      const numbers = () => new Float64Array(common.length);
      const mean = { group, x: numbers(), y: numbers(), low: numbers(), high: numbers() };
      common.forEach((places, k) => {
        let [x, y, square] = [0, 0, 0];
        all.forEach((line, i) => { x += line.x[places[i]] / n; y += line.y[places[i]] / n; });
        all.forEach((line, i) => { square += (line.y[places[i]] - y) ** 2; });
        const error = Math.sqrt(square / (n - 1) / n);
        mean.x[k] = x; mean.y[k] = y; mean.low[k] = y - error; mean.high[k] = y + error;
      });
      mean.isShort = all.some((line) => line.x.length > 0 && !(line.x.at(-1) <= (mean.x.at(-1) ?? -1)));
      return [mean];
    };
    const usable = (value, log) => Number.isFinite(value) && (!log || value > 0);
    const rangeOf = (values, log) => {
      let [low, high] = [Infinity, -Infinity];
      for (const value of values) if (usable(value, log)) { low = Math.min(low, value); high = Math.max(high, value); }
      if (low > high) return log ? [1, 10] : [0, 1];
      if (log) return low === high ? [low / 10, high * 10] : [low / 1.15, high * 1.15];
      const room = (high - low) * 0.03 || Math.abs(high) * 0.1 || 1;
      return [low - room, high + room];
    };

    let plot = null, shown = [], zoom = null, at = null, all = false, isCut = false;
    const box = make("div", { class: "plot", tabindex: "0", role: "application", "aria-label": "Curves. Arrow keys move the cursor, plus and minus zoom, 0 shows everything. Values are in the table beside it." });
    const status = make("p", { class: "small", "aria-live": "polite" });

    const isThere = (line, k) => k >= 0 && k < line.x.length && usable(line.x[k], state.logX) && usable(line.y[k], state.logY);
    const path = (line) => (u) => {
      const stroke = new Path2D();
      for (let k = 0; k < line.x.length; k++) {
        if (!isThere(line, k)) continue;
        const [x, y] = [u.valToPos(line.x[k], "x", true), u.valToPos(line.y[k], "y", true)];
        if (isThere(line, k - 1)) stroke.lineTo(x, y); else stroke.moveTo(x, y);
      }
      return { stroke, fill: null };
    };
    // A record without neighbours, such as that of a method of one round, is no line.
    const drawAlone = (u) => {
      const colors = palettes[scheme.matches ? "dark" : "light"];
      for (const line of shown) {
        for (let k = 0; k < line.x.length; k++) {
          if (!isThere(line, k) || isThere(line, k - 1) || isThere(line, k + 1)) continue;
          u.ctx.beginPath();
          u.ctx.arc(u.valToPos(line.x[k], "x", true), u.valToPos(line.y[k], "y", true), 4 * devicePixelRatio, 0, 2 * Math.PI);
          u.ctx.fillStyle = colors[line.group.color];
          u.ctx.fill();
        }
      }
    };
    const drawBand = (u, line, color) => {
      if (!line.low || !state.bands) return;
      const [floor] = [u.scales.y.min];
      const edge = (values, k) => u.valToPos(Math.max(values[k], state.logY ? floor : -Infinity), "y", true);
      const points = [];
      for (let k = 0; k < line.x.length; k++) if (usable(line.x[k], state.logX) && Number.isFinite(line.y[k])) points.push(k);
      if (points.length < 2) return;
      u.ctx.beginPath();
      points.forEach((k, i) => u.ctx[i ? "lineTo" : "moveTo"](u.valToPos(line.x[k], "x", true), edge(line.high, k)));
      [...points].reverse().forEach((k) => u.ctx.lineTo(u.valToPos(line.x[k], "x", true), edge(line.low, k)));
      u.ctx.closePath();
      u.ctx.globalAlpha = 0.18;
      u.ctx.fillStyle = color;
      u.ctx.fill();
      u.ctx.globalAlpha = 1;
    };
    const levelsOf = () => {
      if (!state.levels || data.metrics[state.y].key !== "mse") return [];
      const isShown = (level) => groups.some((group) => group.shown && group.run === level.run && group.method === level.method && group.point === level.point);
      return data.levels.filter(isShown).slice(0, 40);
    };
    const drawUnder = (u) => {
      const colors = palettes[scheme.matches ? "dark" : "light"];
      u.ctx.save();
      u.ctx.beginPath();
      u.ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
      u.ctx.clip();
      shown.forEach((line) => drawBand(u, line, colors[line.group.color]));
      for (const level of levelsOf()) {
        const group = groups.find((group) => group.run === level.run && group.method === level.method && group.point === level.point);
        const y = u.valToPos(level.y, "y", true);
        u.ctx.strokeStyle = colors[group.color];
        u.ctx.lineWidth = devicePixelRatio;
        u.ctx.setLineDash([2 * devicePixelRatio, 4 * devicePixelRatio]);
        u.ctx.beginPath();
        u.ctx.moveTo(u.bbox.left, y);
        u.ctx.lineTo(u.bbox.left + u.bbox.width, y);
        u.ctx.stroke();
      }
      u.ctx.restore();
    };

    // ---- the values at the cursor ----
    const nearest = (xs, x) => {
      let [low, high] = [0, xs.length - 1];
      while (low < high) { const middle = (low + high) >> 1; if (xs[middle] < x) low = middle + 1; else high = middle; }
      return low > 0 && Math.abs(xs[low - 1] - x) <= Math.abs(xs[low] - x) ? low - 1 : low;
    };
    const tell = (x) => {
      at = x;
      // Of all lines the record that is nearest.
      const best = x == null ? null : shown.filter((line) => line.x.length > 0).map((line) => line.x[nearest(line.x, x)])
        .reduce((best, one) => (best == null || Math.abs(one - x) < Math.abs(best - x) ? one : best), null);
      valueHead.textContent = best == null ? "value" : `at ${short(best)}`;
      const told = new Map();
      for (const line of shown) {
        if (best == null || line.x.length === 0) continue;
        const k = nearest(line.x, best);
        if (!told.has(line.group)) told.set(line.group, []);
        const end = best > line.x.at(-1) ? line.x.at(-1) : null;
        told.get(line.group).push({ seed: line.seed, x: line.x[k], y: line.y[k], error: line.high ? line.high[k] - line.y[k] : null, end });
      }
      groups.forEach((group) => {
        const values = told.get(group) ?? [];
        const cell = group.cell;
        cell.textContent = values.slice(0, 5).map((value) => short(value.y) + (value.end != null ? ` (last, at ${short(value.end)})` : value.error ? ` \u00b1 ${Number(value.error.toPrecision(2))}` : "")).join(", ") + (values.length > 5 ? ", \u2026" : "");
        cell.dataset.values = JSON.stringify(values.map((value) => [value.seed ?? null, value.x, value.y]));
      });
    };
    const moved = (u) => {
      if (u.cursor.left == null || u.cursor.left < 0) return;
      tell(u.posToVal(u.cursor.left, "x"));
    };

    // ---- drawing ----
    const size = () => ({ width: Math.max(260, box.clientWidth), height: Math.max(240, Math.min(480, 140 + box.clientWidth * 0.42)) });
    // Lines that left all others far below are cut, as otherwise nothing is seen of the others.
    const FAR = 1000;
    const top = () => {
      const starts = shown.map((line) => line.y.find((y) => usable(y, true))).filter((y) => y !== undefined);
      const most = FAR * Math.max(...starts);
      const stays = shown.some((line) => line.y.every((y) => !(y > most)));
      return all || !stays || starts.length === 0 ? Infinity : most / FAR * 10;
    };
    const everything = () => {
      const cut = top();
      const below = (y) => y.map((value) => Math.min(value, cut));
      isCut = shown.some((line) => line.y.some((y) => y > cut));
      return {
        x: rangeOf(shown.flatMap((line) => [...line.x]), state.logX),
        y: rangeOf(shown.flatMap((line) => [...(isCut ? below(line.y) : line.y)]).concat(levelsOf().map((level) => level.y)), state.logY),
      };
    };
    // Ticks of logarithmic axes: powers of ten, with 2 and 5 between few of them; equal steps within a power of ten.
    const ticksOf = (low, high, log, most) => {
      const ticks = [];
      if (log && high >= 10 * low) {
        const powers = Math.log10(high / low);
        const step = Math.ceil(powers / most);
        for (let p = Math.floor(Math.log10(low)); p <= Math.log10(high); p++) {
          if (p % step === 0) for (const m of powers < 3 ? [1, 2, 5] : [1]) ticks.push(m * 10 ** p);
        }
      } else {
        const rough = (high - low) / most;
        const unit = 10 ** Math.floor(Math.log10(rough));
        const step = [1, 2, 5, 10].find((m) => m * unit >= rough) * unit;
        for (let k = Math.ceil(low / step); k * step <= high; k++) ticks.push(k * step);
      }
      return ticks.filter((tick) => tick >= low && tick <= high);
    };
    const tickText = (tick) => {
      const size = Math.abs(tick);
      return size >= 1e5 || (size !== 0 && size < 1e-3) ? String(Number(tick.toPrecision(4)).toExponential()).replace("e+", "e") : String(Number(tick.toPrecision(6)));
    };
    const build = () => {
      if (plot) plot.destroy();
      plot = null;
      const colors = palettes[scheme.matches ? "dark" : "light"];
      shown = groups.filter((group) => group.shown).flatMap(lines);
      if (shown.length === 0) {
        status.textContent = "0 lines: the table beside switches them on.";
        return;
      }
      const full = everything();
      const scale = (key, log) => ({ time: false, distr: log ? 3 : 1, log: 10, auto: false, range: () => (zoom ? zoom[key] : full[key]) });
      const axis = (text, log, room) => ({
        label: label(text, 60), stroke: css("--ink"), grid: { stroke: css("--grid"), width: 1 }, ticks: { stroke: css("--frame"), width: 1 },
        font: "12px system-ui, sans-serif", labelFont: "13px system-ui, sans-serif",
        splits: (u, _, low, high) => ticksOf(low, high, log, Math.max(2, Math.floor(room(u)))), filter: (_, ticks) => ticks, values: (_, ticks) => ticks.map(tickText),
      });
      const columns = (u) => u.width / 80, rows = (u) => u.height / 45;
      const options = {
        ...size(), mode: 2, padding: [10, 12, 0, 0],
        scales: { x: scale("x", state.logX), y: scale("y", state.logY) },
        axes: [axis(data.axes[state.x].label, state.logX, columns), { ...axis(data.metrics[state.y].label, state.logY, rows), size: 64 }],
        legend: { show: false },
        cursor: { drag: { x: true, y: true, uni: 20, setScale: false }, points: { show: false }, focus: { prox: -1 } },
        series: [{}, ...shown.map((line) => ({
          facets: [{ scale: "x", auto: false }, { scale: "y", auto: false }], stroke: colors[line.group.color], width: line.seed !== undefined && state.seeds && line.group.seeds.length > 1 ? 1 : 1.8,
          dash: line.group.dash, paths: path(line), points: { show: false },
        }))],
        hooks: {
          drawAxes: [drawUnder],
          draw: [drawAlone],
          setCursor: [moved],
          setSelect: [(u) => {
            if (u.select.width < 8 && u.select.height < 8) return;
            const { left, top, width, height } = u.select;
            zoomTo({
              x: width > 7 ? [u.posToVal(left, "x"), u.posToVal(left + width, "x")] : [u.scales.x.min, u.scales.x.max],
              y: height > 7 ? [u.posToVal(top + height, "y"), u.posToVal(top, "y")] : [u.scales.y.min, u.scales.y.max],
            });
          }],
        },
      };
      plot = new uPlot(options, [null, ...shown.map((line) => [line.x, line.y])], box);
      plot.over.addEventListener("dblclick", () => zoomTo(null));
      const left = groups.filter((group) => !group.shown).length;
      const isShort = shown.some((line) => line.isShort) ? ", as long as all seeds go on" : "";
      status.textContent = `${shown.length} ${shown.length === 1 ? "line" : "lines"}${state.seeds ? ", each seed" : shown.some((line) => line.low) ? `, means over seeds with bands of one standard error${isShort}` : ""}.${left ? ` ${left} more can be switched on in the table.` : ""} Drag to zoom, double-click to show everything.${isCut && !zoom ? " Lines that rise far above the others are cut: \u201cShow everything\u201d has all of them." : ""}${hiddenZeros()}`;
      if (at != null) tell(at);
      command();
    };
    const hiddenZeros = () => {
      const count = state.logY ? shown.reduce((sum, line) => sum + line.y.filter((y) => y === 0).length, 0) : 0;
      return count ? ` A logarithmic axis has no place for ${count === 1 ? "one value" : `${count} values`} of 0.` : "";
    };
    const zoomTo = (to) => { zoom = to; all = all || to == null; build(); };
    const zoomBy = (factor) => {
      if (!plot) return;
      const now = { x: [plot.scales.x.min, plot.scales.x.max], y: [plot.scales.y.min, plot.scales.y.max] };
      const around = ([low, high], log) => {
        const [a, b] = log ? [Math.log10(low), Math.log10(high)] : [low, high];
        const [middle, half] = [(a + b) / 2, (factor * (b - a)) / 2];
        return log ? [10 ** (middle - half), 10 ** (middle + half)] : [middle - half, middle + half];
      };
      zoomTo({ x: around(now.x, state.logX), y: around(now.y, state.logY) });
    };
    box.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step && shown.length) {
        // The next record of any line.
        const next = shown.flatMap((line) => {
          const k = at == null ? 0 : nearest(line.x, at);
          return [line.x[k - 1], line.x[k], line.x[k + 1]].filter((x) => x !== undefined && (at == null || (x - at) * step > 0));
        });
        const x = next.length ? (step > 0 ? Math.min(...next) : Math.max(...next)) : at;
        if (x != null) {
          plot.setCursor({ left: plot.valToPos(x, "x"), top: plot.over.clientHeight / 2 }, false);
          tell(x);
        }
      } else if (event.key === "+" || event.key === "=") zoomBy(0.6);
      else if (event.key === "-") zoomBy(1 / 0.6);
      else if (event.key === "0") zoomTo(null);
      else return;
      event.preventDefault();
    });

    // ---- controls ----
    const select = (text, options, value, change) => {
      const list = make("select", { "aria-label": `${text} axis`, onchange: (event) => change(Number(event.target.value)) });
      options.forEach((option, i) => list.append(make("option", { value: i, selected: i === value }, label(option.label))));
      return make("label", {}, text, list);
    };
    const check = (text, value, change) => {
      const input = make("input", { type: "checkbox", checked: value, onchange: (event) => change(event.target.checked) });
      return make("label", {}, input, " " + text);
    };
    const keep = (key, value, stored) => {
      state[key] = value;
      chosen.set(key.toLowerCase(), stored ?? (value ? "1" : "0"));
      zoom = null;
      build();
    };
    const csv = () => {
      const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
      const rows = [["run", "method", "point", "seed", data.axes[state.x].key, data.metrics[state.y].key].join(",")];
      for (const group of groups.filter((group) => group.shown)) {
        for (const series of group.seeds) {
          const [x, y] = [column(series.x[state.x]), column(series.y[state.y])];
          const start = [quote(data.runs[group.run]), quote(group.method), quote(group.point), series.seed].join(",");
          for (let k = 0; k < x.length; k++) rows.push(`${start},${x[k]},${Number.isNaN(y[k]) ? "" : y[k]}`);
        }
      }
      store(new Blob([rows.join("\n") + "\n"], { type: "text/csv" }), "curves.csv");
    };
    const hasSeeds = groups.some((group) => group.seeds.length > 1);
    const controls = make("div", { class: "controls" },
      select("vertical", data.metrics, state.y, (i) => keep("y", i, data.metrics[i].key)),
      select("horizontal", data.axes, state.x, (i) => keep("x", i, data.axes[i].key)),
      check("logarithmic vertical axis", state.logY, (on) => keep("logY", on)),
      check("logarithmic horizontal axis", state.logX, (on) => keep("logX", on)),
      ...(hasSeeds ? [check("each seed", state.seeds, (on) => keep("seeds", on)), check("bands", state.bands, (on) => keep("bands", on))] : []),
      ...(data.levels.length ? [check("predicted levels", state.levels, (on) => keep("levels", on))] : []),
      make("button", { type: "button", onclick: () => zoomBy(0.6) }, "Zoom in"),
      make("button", { type: "button", onclick: () => zoomBy(1 / 0.6) }, "Zoom out"),
      make("button", { type: "button", onclick: () => zoomTo(null) }, "Show everything"),
      make("button", { type: "button", onclick: csv }, "Save these data (CSV)"));

    // ---- the legend: a table of groups with their values ----
    const valueHead = make("th", { scope: "col" }, "value");
    const body = make("tbody");
    const swatch = (group) => {
      const line = draw("line", { x1: 1, x2: 27, y1: 6, y2: 6, "stroke-width": 2.5, "stroke-dasharray": group.dash.join(" ") });
      group.swatch = line;
      return draw("svg", { width: 28, height: 12, "aria-hidden": "true" }, line);
    };
    const recolor = () => groups.forEach((group) => group.swatch.setAttribute("stroke", palettes[scheme.matches ? "dark" : "light"][group.color]));
    const remember = () => chosen.set("hide", groups.flatMap((group, i) => (group.shown ? [] : [i])).join(","));
    groups.forEach((group) => {
      group.input = make("input", { type: "checkbox", checked: group.shown, onchange: (event) => { group.shown = event.target.checked; remember(); build(); } });
      group.cell = make("td", { class: "n" });
      group.row = make("tr", {}, make("td", {}, make("label", {}, group.input, swatch(group), label(group.name))), group.cell);
      body.append(group.row);
    });
    const switchAll = (on) => {
      groups.forEach((group) => { if (!group.row.hidden) { group.shown = on; group.input.checked = on; } });
      remember();
      build();
    };
    // ---- the command that draws this again ----
    const again = document.getElementById("again");
    let style = "neurips";
    const toml = (text) => JSON.stringify(text).replace(/[\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g, (c) => "\\u" + c.codePointAt(0).toString(16).padStart(4, "0"));
    const quoted = (word) => (/^[\w./:=,+@%~-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
    const commandOf = (r) => {
      const own = groups.filter((group) => group.run === r);
      const drawn = own.filter((group) => group.shown);
      if (!data.figures[r] || drawn.length === 0) return null;
      const some = (key) => {
        const [all, wanted] = [new Set(own.map((group) => group[key])), new Set(drawn.map((group) => group[key]))];
        return wanted.size < all.size ? [...wanted] : null;
      };
      const [metric, { folder, levels }] = [data.metrics[state.y].key, data.figures[r]];
      const keys = { x: data.axes[state.x].key, y: metric, x_log: state.logX, y_log: state.logY, band: state.bands ? "error" : "none", methods: some("method"), points: some("point") };
      if (own.some((group) => group.point !== "")) keys.panels = [];
      if (zoom && zoom.y[0] < zoom.y[1]) keys.y_range = zoom.y;
      const given = Object.entries(keys).filter(([, value]) => value != null);
      if (folder == null) {
        const python = (value) => (typeof value === "boolean" ? (value ? "True" : "False") : Array.isArray(value) ? `[${value.map(python).join(", ")}]` : typeof value === "string" ? toml(value) : String(value));
        return `results.plot(${[`style=${toml(style)}`, ...given.map(([key, value]) => `${key}=${python(value)}`)].join(", ")})`;
      }
      const text = (value) => (Array.isArray(value) ? `[${value.map(text).join(", ")}]` : typeof value === "string" ? toml(value) : Number.isInteger(value) ? `${value}.0` : String(value));
      const table = given.map(([key, value]) => `${key} = ${text(value)}`);
      if (levels && state.levels && metric === "mse") table.push(`levels = ${levels}`);
      return ["fedsa", "plot", quoted(folder), "--style", style, "--set", quoted(`figure={${table.join(", ")}}`)].join(" ");
    };
    const command = () => {
      const commands = data.runs.map((_, r) => commandOf(r)).filter((text) => text != null);
      if (again && commands.length) again.querySelector("ul").replaceChildren(...commands.map((text) => make("li", {}, make("code", {}, text))));
    };
    if (again) {
      const styles = [["neurips", "NeurIPS: 5.5 inches, 9 point Times"], ["ieee", "IEEE: a column of 3.5 inches, 8 point Times"], ["slides", "slides: 16:9, large letters"]];
      const list = make("select", { "aria-label": "where the figure goes", onchange: (event) => { style = event.target.value; command(); } }, ...styles.map(([name, text]) => make("option", { value: name }, text)));
      again.querySelector("div").append(make("div", { class: "controls" }, make("label", {}, "where it goes", list)), make("p", { class: "small" }, "Draws the axes and lines that are chosen above, all chosen methods at all chosen points:"));
    }

    const search = make("input", { type: "search", placeholder: "part of a name", "aria-label": "Show only lines whose names contain this in the table", oninput: (event) => {
      const wanted = event.target.value.toLowerCase();
      groups.forEach((group) => { group.row.hidden = !group.name.toLowerCase().includes(wanted); });
    } });
    const tools = make("div", { class: "controls" }, ...(groups.length > 8 ? [search] : []),
      make("button", { type: "button", onclick: () => switchAll(true) }, "All"), make("button", { type: "button", onclick: () => switchAll(false) }, "None"));
    const legend = make("div", {}, tools, make("div", { class: "wide legend", tabindex: "0", role: "region", "aria-label": "Lines and their values" },
      make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "line"), valueHead)), body)));
    root.append(controls, make("div", { class: "board" }, make("div", {}, box, status), legend));
    recolor();
    build();
    scheme.addEventListener("change", () => { recolor(); build(); });
    let width = box.clientWidth;
    new ResizeObserver(() => { if (box.clientWidth !== width) { width = box.clientWidth; plot?.setSize(size()); } }).observe(box);
    const pictures = [...document.querySelectorAll("details.pictures")];
    pictures.forEach((details) => { details.open = false; });
    // Paper has the pictures in place of these curves.
    let open = [];
    addEventListener("beforeprint", () => {
      open = pictures.map((details) => details.open);
      pictures.forEach((details) => { details.open = true; });
    });
    addEventListener("afterprint", () => pictures.forEach((details, i) => { details.open = open[i] ?? false; }));
  };

  // ---- maps of sweeps over two keys: the page has them as pictures; here one quantity is chosen, and values are told at the pointer ----
  const maps = () => {
    document.querySelectorAll(".sweep").forEach((place, k) => {
      const { sweep } = data.sweeps[k];
      const figures = [...place.querySelectorAll("figure.maps")];
      const told = make("output", { class: "small told" }, "Values are shown at the pointer.");
      const show = (chosenOne) => figures.forEach((figure, q) => { figure.hidden = q !== chosenOne; });
      const list = make("select", { "aria-label": "what the maps show", onchange: (event) => show(Number(event.target.value)) });
      sweep.quantities.forEach((quantity, q) => list.append(make("option", { value: q }, label(quantity.quantity))));
      const name = (value) => (typeof value === "number" ? short(value) : label(value, 24));
      figures.forEach((figure, q) => figure.querySelectorAll("svg[data-w]").forEach((svg, m) => {
        const { method, cells } = sweep.quantities[q].methods[m];
        const [columns, rows] = [sweep.xs.length, sweep.ys.length];
        svg.addEventListener("pointermove", (event) => {
          const box = svg.getBoundingClientRect();
          const scale = svg.viewBox.baseVal.width / box.width;
          const i = Math.floor(((event.clientX - box.left) * scale - Number(svg.dataset.left)) / Number(svg.dataset.w));
          const j = rows - 1 - Math.floor(((event.clientY - box.top) * scale - Number(svg.dataset.top)) / Number(svg.dataset.h));
          if (i < 0 || j < 0 || i >= columns || j >= rows) return;
          const cell = cells[j * columns + i];
          const text = typeof cell === "number" ? short(cell) : cell ?? "not run";
          told.textContent = `${label(method)} at ${label(sweep.x)} = ${name(sweep.xs[i])}, ${label(sweep.y)} = ${name(sweep.ys[j])}: ${text}`;
          told.dataset.value = typeof cell === "number" ? cell : "";
        });
      }));
      if (figures.length > 1) place.prepend(make("div", { class: "controls" }, make("label", {}, "what is shown", list)));
      place.append(told);
      show(0);
    });
  };

  curves();
  maps();
  document.documentElement.dataset.ready = "1";
  if (data.reload) setTimeout(() => location.reload(), data.reload * 1000);
})();
