// Robustness curves with uPlot: everything drawn comes from the page's data, nothing is computed anew here.
(() => {
  "use strict";
  const { data, make, announce, colour, isDark, downloads } = window.sigmazero;
  const charts = data("charts") ?? {};
  const HEIGHT = 340;
  const WHOLE = [1, 2, 5].flatMap((k) => Array.from({ length: 7 }, (_, power) => k * 10 ** power)).sort((a, b) => a - b);
  const stepped = uPlot.paths.stepped({ align: 1 });
  const percent = (value) => `${value.toFixed(1)} %`;

  const stroke = (one) => (one.light ? (isDark() ? one.dark : one.light) : colour("ink"));
  const faded = (hex, share) => `${hex}${Math.round(share * 255).toString(16).padStart(2, "0")}`;

  const swatch = (one) => {
    const box = make("canvas", { width: 44, height: 20, aria: { hidden: "true" } });
    const pen = box.getContext("2d");
    Object.assign(pen, { strokeStyle: stroke(one), fillStyle: stroke(one), lineWidth: 5 });
    if (one.dash) {
      pen.setLineDash(one.dash.map((length) => 2 * length));
      pen.beginPath();
      pen.moveTo(0, 10);
      pen.lineTo(44, 10);
      pen.stroke();
    } else {
      pen.arc(22, 10, 7, 0, 7);
      pen.fill();
    }
    return box;
  };

  // One entry per name in the legend: a line with its band, or the points of one attack.
  const entries = (chart) => {
    const points = new Map();
    for (const point of chart.points) {
      if (!points.has(point.label)) points.set(point.label, { ...point, at: [] });
      points.get(point.label).at.push(point);
    }
    return [...chart.series, ...points.values()];
  };

  const columns = (chart, entry) => {
    if (!entry.at) return [entry.rate, entry.low, entry.high];
    const at = (name) => chart.ks.map((k) => entry.at.find((point) => point.k === k)?.[name] ?? null);
    return [at("rate"), at("low"), at("high")];
  };

  // Bars at points, since a point has no band.
  const bars = (chart, list) => (u) => {
    list.forEach((entry, place) => {
      if (!entry.at || !u.series[1 + 3 * place].show) return;
      u.ctx.save();
      u.ctx.strokeStyle = stroke(entry);
      u.ctx.lineWidth = 1.5 * devicePixelRatio;
      for (const point of entry.at) {
        const x = u.valToPos(point.k, "x", true);
        u.ctx.beginPath();
        u.ctx.moveTo(x, u.valToPos(point.low, "y", true));
        u.ctx.lineTo(x, u.valToPos(point.high, "y", true));
        u.ctx.stroke();
      }
      u.ctx.restore();
    });
  };

  // An arrow at the right edge for each curve that rises beyond it.
  const arrows = (chart, list) => (u) => {
    const { max } = u.scales.x;
    if (max >= chart.end - 0.001) return;
    const at = chart.ks.findLastIndex((k) => k <= max);
    list.forEach((entry) => {
      if (entry.at || !entry.shown || entry.rate[at] === entry.rate.at(-1)) return;
      const [x, y, size] = [u.valToPos(max, "x", true), u.valToPos(entry.rate[at], "y", true), 5 * devicePixelRatio];
      u.ctx.save();
      u.ctx.fillStyle = stroke(entry);
      u.ctx.beginPath();
      u.ctx.moveTo(x + size, y);
      u.ctx.lineTo(x - size, y - size);
      u.ctx.lineTo(x - size, y + size);
      u.ctx.fill();
      u.ctx.restore();
    });
  };

  const options = (chart, list, width, log, isBanded, hooks) => {
    const series = [{ label: "k" }];
    const bands = [];
    list.forEach((entry, place) => {
      const first = 1 + 3 * place;
      const plain = { paths: entry.at ? () => null : stepped, points: { show: false }, show: entry.shown };
      series.push({
        ...plain, label: entry.label, stroke: stroke(entry), width: entry.light ? 2 : 1.5, dash: entry.dash,
        points: entry.at ? { show: true, size: 8, fill: stroke(entry) } : { show: false },
      });
      series.push({ ...plain, stroke: "transparent" }, { ...plain, stroke: "transparent" });
      if (entry.low && !entry.at) bands.push({ series: [first + 2, first + 1], fill: () => (isBanded(entry) ? faded(stroke(entry), 0.2) : entry.proved ? faded(stroke(entry), 0.22) : "#00000000") });
    });
    const axis = { stroke: colour("muted"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "13px system-ui, sans-serif" };
    const named = { ...axis, labelFont: "13px system-ui, sans-serif", labelSize: 22 };
    return {
      width, height: HEIGHT, series, bands, hooks, legend: { show: false },
      scales: { x: { time: false, distr: log ? 4 : 1, asinh: 1, range: (_, min, max) => [min, max] }, y: { range: [0, 101] } },
      axes: [{ ...named, size: 32, label: chart.axis, ...(chart.word === "cost" || log ? {} : { incrs: WHOLE }) }, { ...named, label: "fooled, %", size: 44 }],
      cursor: { drag: { x: true, y: false, dist: 5 }, points: { show: false }, y: false },
    };
  };

  const read = (chart, list, idx) => {
    const rows = [];
    for (const entry of list.filter((one) => one.shown)) {
      const [rate, low, high] = columns(chart, entry).map((column) => column?.[idx] ?? null);
      if (rate !== null) rows.push({ entry, text: percent(rate), ends: low === null ? "" : `${low.toFixed(1)}–${high.toFixed(1)}` });
    }
    return rows.sort((a, b) => parseFloat(b.text) - parseFloat(a.text));
  };

  const heading = (chart, idx) => `${chart.word} = ${chart.word === "k" ? Math.floor(chart.ks[idx]) : Number(chart.ks[idx].toPrecision(6))}`;

  const draw = (holder) => {
    const chart = charts[holder.dataset.chart];
    const list = entries(chart);
    for (const entry of list) entry.shown = true;
    const x = chart.ks;
    const values = [x, ...list.flatMap((entry) => columns(chart, entry).map((column) => column ?? x.map(() => null)))];
    const plot = make("div", { className: "plot" });
    const tip = make("div", { className: "tip", hidden: true });
    const legend = make("ul", { className: "legend" });
    const leader = list.find((entry) => entry.label === chart.leader) ?? null;
    let [pointed, named] = [null, null]; // the curve next to the pointer, and that whose name is pointed at
    const banded = () => named ?? pointed ?? leader;
    const band = () => u.redraw(false);
    let u = null;
    let log = false;
    let all = false;
    const home = () => (log || all ? chart.end : chart.view ?? chart.end);

    const nearest = (idx) => {
      const at = u.posToVal(u.cursor.top, "y");
      const lines = list.filter((entry) => entry.shown && entry.low && !entry.at && !entry.proved);
      return lines.sort((a, b) => Math.abs(a.rate[idx] - at) - Math.abs(b.rate[idx] - at))[0] ?? null;
    };

    const showTip = () => {
      const idx = u.cursor.idx;
      const before = banded();
      pointed = idx === null || idx === undefined || u.cursor.left < 0 ? null : nearest(idx);
      if (banded() !== before) band();
      const rows = idx === null || idx === undefined || u.cursor.left < 0 ? [] : read(chart, list, idx);
      tip.hidden = rows.length === 0;
      if (tip.hidden) return;
      tip.replaceChildren(make("b", {}, heading(chart, idx)), ...rows.map((row) => {
        const ends = row.ends ? ` (${row.ends})` : "";
        return make("div", {}, swatch(row.entry), make("em", {}, row.entry.label), make("span", {}, row.text, make("small", {}, ends)));
      }));
      const left = u.over.offsetLeft + u.valToPos(x[idx], "x");
      const far = left + 16 + tip.offsetWidth > plot.clientWidth;
      tip.style.left = `${Math.max(0, far ? left - 16 - tip.offsetWidth : left + 16)}px`;
      tip.style.top = `${Math.max(0, Math.min(u.cursor.top, HEIGHT - tip.offsetHeight - 50))}px`;
      const said = rows.map((row) => `${row.entry.label} ${row.text}`).join(", ");
      u.over.setAttribute("aria-valuenow", x[idx]);
      u.over.setAttribute("aria-valuetext", `${heading(chart, idx)}: ${said}`);
    };

    const moveTo = (idx) => {
      const at = Math.min(Math.max(idx, 0), x.length - 1);
      u.setCursor({ left: Math.max(0, u.valToPos(x[at], "x")), top: 30 });
    };
    const whole = () => u.setScale("x", { min: 0, max: home() });
    const zoom = (factor) => {
      const { min, max } = u.scales.x;
      const middle = x[u.cursor.idx ?? 0];
      u.setScale("x", { min: Math.max(0, middle - (middle - min) * factor), max: Math.min(chart.end, middle + (max - middle) * factor) });
    };

    const keys = {
      ArrowLeft: (idx) => moveTo(idx - 1), ArrowRight: (idx) => moveTo(idx + 1),
      PageDown: (idx) => moveTo(idx - 10), PageUp: (idx) => moveTo(idx + 10),
      Home: () => moveTo(0), End: () => moveTo(x.length - 1),
      "+": () => zoom(0.5), "-": () => zoom(2), Escape: whole,
    };
    const onKey = (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      keys[event.key](u.cursor.idx ?? 0);
    };
    const onTouch = (event) => {
      const box = u.over.getBoundingClientRect();
      u.setCursor({ left: event.touches[0].clientX - box.left, top: event.touches[0].clientY - box.top });
    };

    const reset = make("button", { type: "button", hidden: true }, "Reset zoom");
    const isZoomed = () => u && (u.scales.x.min > 0.001 || Math.abs(u.scales.x.max - home()) > 0.001);
    const onScale = () => { reset.hidden = !isZoomed(); };

    const render = () => {
      const view = u ? { min: u.scales.x.min, max: u.scales.x.max } : { min: 0, max: home() };
      u?.destroy();
      u = new uPlot(options(chart, list, plot.clientWidth, log, (entry) => entry === banded(), {
        setCursor: [showTip], setScale: [(_, name) => name === "x" && u && onScale()], draw: [bars(chart, list), arrows(chart, list)],
      }), values, plot);
      u.setScale("x", view);
      const canvas = u.root.querySelector("canvas");
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `Curves of ${chart.title}: ${list.map((one) => one.label).join(", ")}. The numbers are in the table below.`);
      const over = { role: "slider", tabindex: "0", "aria-label": `Read the curves of ${chart.title} at ${chart.word}`, "aria-valuemin": "0", "aria-valuemax": chart.end, "aria-valuenow": "0", "aria-valuetext": `${chart.word} = 0` };
      for (const [name, value] of Object.entries(over)) u.over.setAttribute(name, value);
      u.over.addEventListener("keydown", onKey);
      u.over.addEventListener("touchstart", onTouch, { passive: true });
      u.over.addEventListener("touchmove", onTouch, { passive: true });
      u.over.addEventListener("focus", () => u.over.matches(":focus-visible") && moveTo(u.cursor.idx ?? 0));
      u.over.addEventListener("blur", () => u.setCursor({ left: -10, top: -10 }));
      plot.append(tip);
      legend.replaceChildren(...list.map(legendEntry));
    };

    const legendEntry = (entry, place) => {
      const button = make("button", { type: "button", aria: { pressed: String(entry.shown) } }, swatch(entry), entry.label);
      button.addEventListener("click", () => {
        entry.shown = !entry.shown;
        button.setAttribute("aria-pressed", String(entry.shown));
        for (const each of [1, 2, 3]) u.setSeries(3 * place + each, { show: entry.shown });
        announce(`${entry.label} ${entry.shown ? "shown" : "hidden"}`);
      });
      for (const [event, value] of [["pointerenter", entry], ["focus", entry], ["pointerleave", null], ["blur", null]]) {
        button.addEventListener(event, () => {
          named = entry.low && !entry.at ? value : null;
          band();
        });
      }
      return make("li", {}, button);
    };

    const scale = make("button", { type: "button", aria: { pressed: "false" } }, `Logarithmic ${chart.word}`);
    scale.addEventListener("click", () => {
      log = !log;
      scale.setAttribute("aria-pressed", String(log));
      render();
      whole();
    });
    const everything = make("button", { type: "button", aria: { pressed: "false" }, hidden: !chart.cut }, `All ${chart.word}`);
    everything.addEventListener("click", () => {
      all = !all;
      everything.setAttribute("aria-pressed", String(all));
      whole();
    });
    reset.addEventListener("click", whole);
    const drawn = () => downloads.svg(chart, list.filter((entry) => entry.shown), { end: u.scales.x.max, log, banded: leader });
    const rows = () => [[chart.word, ...list.filter((one) => !one.at).flatMap((one) => [one.label, ...(one.low ? [`${one.label} low`, `${one.label} high`] : [])])],
      ...x.map((k, at) => [k, ...list.filter((one) => !one.at).flatMap((one) => (one.low ? [one.rate[at], one.low[at], one.high[at]] : [one.rate[at]]))])];
    const file = downloads.safe(chart.title);
    const saves = {
      SVG: () => downloads.save(`${file}.svg`, drawn(), "image/svg+xml"),
      PNG: () => downloads.png(drawn(), `${file}.png`),
      CSV: () => downloads.save(`${file}.csv`, downloads.csv(rows()), "text/csv"),
    };
    const buttons = Object.entries(saves).map(([kind, act]) => {
      const button = make("button", { type: "button", aria: { label: `Save ${kind} of ${chart.title}` } }, `Save ${kind}`);
      button.addEventListener("click", act);
      return button;
    });
    const cut = make("p", { className: "note cut", hidden: !chart.cut }, `${chart.cut} – the arrows at the edge.`);
    holder.append(make("div", { className: "tools" }, reset, everything, scale), plot, cut, legend, make("div", { className: "tools saves" }, ...buttons));
    render();
    document.addEventListener("themechange", render);
    new ResizeObserver(() => u.width !== plot.clientWidth && u.setSize({ width: plot.clientWidth, height: HEIGHT })).observe(plot);
  };

  document.querySelectorAll("[data-chart]").forEach(draw);
})();
