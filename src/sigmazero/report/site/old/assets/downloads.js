// Figures as files: a chart drawn anew as SVG, the same as PNG, and its numbers as CSV. Nothing leaves the page.
window.sigmazero.downloads = (() => {
  "use strict";
  const { make, announce } = window.sigmazero;
  const [WIDTH, HEIGHT, LEFT, RIGHT, TOP, BELOW] = [820, 430, 62, 190, 40, 66];
  const INK = "#1b1f24";

  const save = (name, content, kind) => {
    const url = URL.createObjectURL(content instanceof Blob ? content : new Blob([content], { type: kind }));
    make("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
    announce(`Saved ${name}`);
  };

  const safe = (text) => text.replace(/[^\p{L}\p{N}._-]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 80) || "figure";
  const escaped = (text) => String(text).replace(/[&<>"']/g, (mark) => `&#${mark.charCodeAt(0)};`);
  const tag = (name, properties, text = "") =>
    `<${name}${Object.entries(properties).map(([key, value]) => ` ${key}="${escaped(value)}"`).join("")}>${escaped(text)}</${name}>`;

  // Round numbers up to the end, five or so; on a logarithmic axis powers of ten.
  const ticks = (end, log, whole) => {
    if (log) return [0, ...Array.from({ length: 9 }, (_, power) => 10 ** power).filter((k) => k <= end)];
    const raw = end / 6;
    const unit = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((k) => k * unit).find((k) => k >= raw);
    const by = whole ? Math.max(1, Math.round(step)) : step;
    return Array.from({ length: Math.floor(end / by) + 1 }, (_, k) => Number((k * by).toPrecision(6)));
  };

  const svg = (chart, list, { end, log, banded }) => {
    const along = (k) => (log ? Math.asinh(k) / Math.asinh(end) : k / end);
    const x = (k) => LEFT + along(Math.min(k, end)) * (WIDTH - LEFT - RIGHT);
    const y = (rate) => HEIGHT - BELOW - (rate / 101) * (HEIGHT - BELOW - TOP);
    const shown = chart.ks.map((k, at) => at).filter((at) => chart.ks[at] <= end);
    const steps = (values) => shown.map((at, n) => (n ? `H${x(chart.ks[at]).toFixed(1)}V${y(values[at]).toFixed(1)}` : `M${x(chart.ks[at]).toFixed(1)},${y(values[at]).toFixed(1)}`)).join("") + `H${x(end).toFixed(1)}`;
    const back = (values) => [...shown].reverse().map((at, n) => `${n ? "" : `L${x(end).toFixed(1)},${y(values[at]).toFixed(1)}`}H${x(chart.ks[at]).toFixed(1)}${n + 1 < shown.length ? `V${y(values[shown[shown.length - 2 - n]]).toFixed(1)}` : ""}`).join("");
    const font = { "font-family": "Helvetica, Arial, sans-serif", fill: INK };
    const parts = [tag("rect", { width: WIDTH, height: HEIGHT, fill: "#ffffff" }), tag("text", { x: LEFT, y: 22, "font-size": 15, ...font }, chart.title)];
    for (const k of ticks(end, log, chart.word !== "cost")) {
      parts.push(tag("line", { x1: x(k), x2: x(k), y1: TOP, y2: y(0), stroke: "#e3e6ea" }), tag("text", { x: x(k), y: y(0) + 16, "font-size": 11, "text-anchor": "middle", ...font }, k));
    }
    for (const rate of [0, 20, 40, 60, 80, 100]) {
      parts.push(tag("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(rate), y2: y(rate), stroke: "#e3e6ea" }), tag("text", { x: LEFT - 6, y: y(rate) + 4, "font-size": 11, "text-anchor": "end", ...font }, rate));
    }
    list.forEach((entry, place) => {
      const colour = entry.light ?? INK;
      const row = TOP + 6 + 18 * place;
      if (entry.at) {
        for (const point of entry.at) {
          parts.push(tag("line", { x1: x(point.k), x2: x(point.k), y1: y(point.low), y2: y(point.high), stroke: colour }), tag("circle", { cx: x(point.k), cy: y(point.rate), r: 3.5, fill: colour }));
        }
        parts.push(tag("circle", { cx: WIDTH - RIGHT + 24, cy: row, r: 3.5, fill: colour }));
      } else {
        const dash = entry.dash?.length ? { "stroke-dasharray": entry.dash.join(" ") } : {};
        if ((entry === banded || entry.proved) && entry.low) parts.push(tag("path", { d: `${steps(entry.high)}${back(entry.low)}Z`, fill: colour, "fill-opacity": entry.proved ? 0.12 : 0.18 }));
        parts.push(tag("path", { d: steps(entry.rate), fill: "none", stroke: colour, "stroke-width": 2, ...dash }));
        parts.push(tag("path", { d: `M${WIDTH - RIGHT + 12},${row}h24`, stroke: colour, "stroke-width": 2, ...dash }));
      }
      parts.push(tag("text", { x: WIDTH - RIGHT + 42, y: row + 4, "font-size": 12, ...font }, entry.label));
    });
    const middle = (LEFT + WIDTH - RIGHT) / 2;
    parts.push(tag("text", { x: middle, y: HEIGHT - 32, "font-size": 12, "text-anchor": "middle", ...font }, chart.axis));
    parts.push(tag("text", { x: 16, y: (TOP + HEIGHT - BELOW) / 2, "font-size": 12, "text-anchor": "middle", transform: `rotate(-90 16 ${(TOP + HEIGHT - BELOW) / 2})`, ...font }, "fooled, %"));
    const notes = [end < chart.end ? chart.cut : "", banded ? `band: 95 % interval of ${banded.label}` : ""].filter(Boolean).join("; ");
    parts.push(tag("text", { x: LEFT, y: HEIGHT - 10, "font-size": 10, ...font }, notes));
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${HEIGHT}" viewBox="0 0 ${WIDTH} ${HEIGHT}">${parts.join("")}</svg>`;
  };

  const png = (text, name) => {
    const image = new Image();
    image.onload = () => {
      const canvas = make("canvas", { width: 2 * WIDTH, height: 2 * HEIGHT });
      canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => save(name, blob), "image/png");
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  };

  // A spreadsheet takes a text that begins so for a formula; the quote keeps it a text.
  const field = (value) => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const csv = (rows) => `${rows.map((row) => row.map(field).join(",")).join("\n")}\n`;

  return { save, safe, svg, png, csv };
})();
