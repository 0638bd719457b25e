// Everything but the samples is readable without this script. It sorts, filters and copies tables, reads curves at the
// pointer, draws samples, and keeps the page of a running store up to date.
"use strict";
const data = (name) => JSON.parse(document.getElementById(`data-${name}`)?.textContent ?? "null");
const make = (name, properties = {}, ...children) => {
  const { aria = {}, ...rest } = properties;
  const node = Object.assign(document.createElement(name), rest);
  for (const [key, value] of Object.entries(aria)) node.setAttribute(`aria-${key}`, value);
  node.append(...children);
  return node;
};
const button = (text, action) => {
  const made = make("button", { type: "button" }, text);
  made.addEventListener("click", action);
  return made;
};
const announce = (text) => {
  const status = document.getElementById("status");
  status.textContent = text;
  status.classList.add("shown");
  clearTimeout(announce.timer);
  announce.timer = setTimeout(() => status.classList.remove("shown"), 2500);
};
const copy = async (text, what) => {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // a page from disk may not use the clipboard: copy a selection instead
    const box = make("textarea", { value: text });
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  announce(`Copied ${what}`);
};
if (window.parent !== window) document.body.className = "framed"; // the page around it has the name
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((fold) => { fold.open = true; }));

// Tables --------------------------------------------------------------------------------------------------------------
const LONG = 10; // rows from which a table has a filter
for (const figure of document.querySelectorAll("figure.table")) {
  const body = figure.querySelector("tbody");
  const rows = [...body.rows];
  const heads = [...figure.querySelectorAll("thead th")];
  const key = (row, column) => {
    const cell = row.cells[column];
    const text = cell.textContent.trim();
    if (!heads[column].classList.contains("number") && !cell.dataset.sort) return text === "–" ? null : text;
    const number = parseFloat(cell.dataset.sort ?? text.replace("∞", "Infinity").replace("−", "-").replaceAll(",", ""));
    return Number.isNaN(number) ? null : number;
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? (a === b ? 0 : a - b) : String(a).localeCompare(String(b), "en", { numeric: true }));
  heads.forEach((head, column) => {
    const sort = () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...rows].sort((left, right) => {
        const [a, b] = [key(left, column), key(right, column)];
        return a === null || b === null ? (a === null) - (b === null) : compare(a, b) * (down ? -1 : 1);
      }));
      announce(`Sorted by ${head.textContent}, ${head.getAttribute("aria-sort")}`);
    };
    const text = head.textContent;
    head.replaceChildren(button(text, sort));
  });
  const caption = figure.querySelector("figcaption");
  const tools = make("span", { className: "tools" });
  if (rows.length >= LONG) {
    const box = make("input", { type: "search", placeholder: "Filter rows", aria: { label: `Filter rows of ${caption.textContent}` } });
    box.addEventListener("input", () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
      announce(`${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`);
    });
    tools.append(box);
  }
  const texts = data("copies")?.[figure.dataset.copies];
  if (texts) {
    const menu = make("details", { className: "menu" }, make("summary", {}, "Copy as …"));
    menu.append(make("div", {}, ...Object.entries(texts).map(([kind, text]) => button(kind, () => { copy(text, kind); menu.open = false; }))));
    tools.append(menu);
  }
  if (tools.children.length) caption.append(tools);
}

// Charts: drawn already; this reads their numbers at the pointer and hides curves. --------------------------------------
for (const figure of document.querySelectorAll("figure.chart")) {
  const chart = data("charts")[figure.dataset.chart];
  const plot = figure.querySelector(".plot");
  const hidden = new Set();
  const [tip, cursor] = [make("div", { className: "tip", hidden: true }), make("div", { className: "cursor", hidden: true })];
  plot.append(cursor, tip);
  for (const box of figure.querySelectorAll(".legend input")) {
    box.addEventListener("change", () => {
      hidden[box.checked ? "delete" : "add"](box.dataset.label);
      for (const part of plot.querySelectorAll("[data-label]")) part.style.display = hidden.has(part.dataset.label) ? "none" : "";
    });
  }
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    const pointed = ((event.clientX - box.left) / box.width) * chart.end;
    const place = chart.ks.findLastIndex((each) => each <= pointed); // the step that the pointer is on
    tip.hidden = cursor.hidden = place < 0 || pointed > chart.end;
    if (tip.hidden) return;
    const k = chart.ks[place];
    cursor.style.left = `${(100 * k) / chart.end}%`;
    const shown = chart.series.filter((one) => !hidden.has(one.label)).sort((a, b) => b.rate[place] - a.rate[place]);
    tip.replaceChildren(make("b", {}, `${chart.word} = ${k}`), ...shown.map((one) => {
      const mark = make("i", { className: "swatch" });
      mark.style.background = one.colour;
      const ends = one.low ? [make("small", {}, ` (${one.low[place].toFixed(1)}–${one.high[place].toFixed(1)})`)] : [];
      return make("div", {}, mark, `${one.label} ${one.rate[place].toFixed(1)} %`, ...ends);
    }));
    const x = event.clientX - box.left;
    tip.style.left = `${x + 16 + tip.offsetWidth > box.width ? Math.max(x - 16 - tip.offsetWidth, 0) : x + 16}px`;
    tip.style.top = `${Math.max(0, Math.min(event.clientY - box.top, box.height - tip.offsetHeight))}px`;
  });
  plot.addEventListener("pointerleave", () => { tip.hidden = cursor.hidden = true; });
}

// Samples: clean images as bytes, and for each run which values became what. --------------------------------------------
const MORE = "230 97 1";
const LESS = "124 92 190"; // orange and purple stay apart for colour-blind readers, in both themes
const bytes = (text) => Uint8Array.from(atob(text), (mark) => mark.charCodeAt(0));

const paint = (canvas, shape, image, edits, faint = false) => {
  const [channels, height, width] = shape;
  const area = width * height;
  const zoom = Math.max(1, Math.round(224 / Math.max(width, height)));
  const small = new OffscreenCanvas(width, height);
  const pixels = new ImageData(width, height);
  for (let p = 0; p < area; p += 1) for (let c = 0; c < 4; c += 1) pixels.data[4 * p + c] = c === 3 ? 255 : image[(channels === 1 ? 0 : c) * area + p];
  small.getContext("2d").putImageData(pixels, 0, 0);
  Object.assign(canvas, { width: width * zoom, height: height * zoom });
  const pen = canvas.getContext("2d");
  pen.imageSmoothingEnabled = false;
  pen.globalAlpha = faint ? 0.22 : 1;
  pen.drawImage(small, 0, 0, canvas.width, canvas.height);
  pen.globalAlpha = 1;
  const largest = new Map(); // of the channels of a pixel, the one that changed most
  for (const [at, value] of edits) {
    const by = value - image[at];
    if (Math.abs(by) >= Math.abs(largest.get(at % area) ?? 0)) largest.set(at % area, by);
  }
  const size = Math.max(1, Math.max(width, height) / 56) * zoom; // a mark stays visible on a large image
  for (const [at, by] of largest) {
    pen.fillStyle = `rgb(${by < 0 ? LESS : MORE} / ${0.5 + Math.abs(by) / 510})`;
    pen.fillRect(((at % width) + 0.5) * zoom - size / 2, (Math.floor(at / width) + 0.5) * zoom - size / 2, size, size);
  }
  return canvas;
};

const samples = data("samples");
const outcomes = data("outcomes");
const [ALREADY, FOUND] = [0, 1];
for (const set of samples?.sets ?? []) {
  set.where = new Map(set.rows.map((row, at) => [row, at]));
  set.name = (label) => String(set.classes?.[label] ?? label);
  if (!set.images) continue;
  const pixels = bytes(set.images);
  const size = set.shape.reduce((a, b) => a * b, 1);
  set.clean = (row) => pixels.slice(set.where.get(row) * size, (set.where.get(row) + 1) * size);
}
for (const group of samples?.groups ?? []) {
  group.set = samples.sets[group.set];
  for (const run of group.runs) {
    run.where = new Map(run.rows.map((row, at) => [row, at]));
    if (!run.index) continue;
    const [raw, values] = [bytes(run.index).buffer, bytes(run.value)];
    const places = run.wide ? new Uint32Array(raw) : new Uint16Array(raw);
    let start = 0;
    run.edits = run.counts.map((count) => Array.from({ length: count }, () => [places[start], values[start++]]));
  }
  group.rows = group.set.rows.filter((row) => group.runs.some((run) => run.where.has(row)));
  // The run that needed the fewest changes for a row, and how many.
  group.best = new Map(group.rows.map((row) => {
    const runs = group.runs.filter((run) => run.where.has(row));
    const changes = (run) => run.changes[run.where.get(row)] ?? Infinity;
    const run = runs.reduce((best, each) => (changes(each) < changes(best) ? each : best));
    return [row, { run, changes: changes(run), at: run.where.get(row) }];
  }));
}
const count = (group, changes) => `${changes} ${group.unit}${changes === 1 ? "" : "s"} changed`;
const lead = (group, row, run, at) => {
  const after = group.set.name(run.after[at]);
  const name = group.set.name(group.set.labels[group.set.where.get(row)]);
  return run.outcome[at] === ALREADY ? `${name}, taken for ${after}` : run.changes[at] === null ? name : `${group.set.name(run.before[at])} → ${after}`;
};
const fields = (changes, most) => {
  const lines = changes.slice(0, most).map(([name, before, after, cost]) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, before), make("td", {}, `→ ${after}`), make("td", {}, cost === null ? "" : make("small", {}, `cost ${cost}`))));
  const rest = changes.length > most ? [make("p", { className: "note" }, `and ${changes.length - most} more`)] : [];
  return [make("table", { className: "fields" }, ...lines), ...rest];
};

const preview = (group, row) => {
  const { run, changes, at } = group.best.get(row);
  const words = changes === 0 ? "wrong already" : changes === Infinity ? "not fooled" : count(group, changes);
  const link = make("a", { href: `#sample-${samples.groups.indexOf(group)}-${row}` });
  const text = lead(group, row, run, at);
  const parts = run.edits ? [paint(make("canvas", { role: "img", aria: { label: `Row ${row}: ${text}, ${words}` } }), group.set.shape, group.set.clean(row), run.edits[at])] : [];
  if (run.words) parts.push(...fields(run.words[at], 4));
  link.append(make("figure", {}, ...parts, make("figcaption", {}, text, make("small", {}, run.words ? `row ${row}, ${words}` : words))));
  return link;
};

const found = (group, row) => { const { run, at } = group.best.get(row); return run.by?.[at] || run.name; };

// What attacks found and proofs say about a row, in a sentence.
const verdict = (group, row) => {
  const { run, changes } = group.best.get(row);
  const least = Math.max(0, ...group.runs.map((each) => each.least?.[each.where.get(row)] ?? 0));
  const proof = least ? `; at least ${least} needed, which is proved` : "";
  if (changes === 0) return "Classified wrongly without any change.";
  if (changes === Infinity) return `No attack fooled it${proof}.`;
  return least === changes ? `Exactly ${count(group, changes)}, by ${found(group, row)}: fewer cannot do it, which is proved.` : `At most ${count(group, changes)}, by ${found(group, row)}${proof}.`;
};

const card = (group, row, run) => {
  const at = run.where.get(row);
  const mark = make("i", { className: "swatch" });
  mark.style.background = run.colour;
  const made = make("article", {}, make("h4", {}, mark, run.name));
  const clean = group.set.clean?.(row);
  if (run.edits) {
    const adversarial = clean.slice();
    for (const [place, value] of run.edits[at]) adversarial[place] = value;
    const shown = (canvas, label, text) => { canvas.role = "img"; canvas.ariaLabel = label; return make("figure", {}, canvas, make("figcaption", {}, text)); };
    made.append(make("div", { className: "pair" },
      shown(paint(make("canvas"), group.set.shape, adversarial, []), `Row ${row} after ${run.name}, classified as ${group.set.name(run.after[at])}`, "adversarial"),
      shown(paint(make("canvas"), group.set.shape, clean, run.edits[at], true), `${run.edits[at].length} of ${clean.length} values changed`, "changes")));
  }
  if (run.words) made.append(...(run.words[at].length ? fields(run.words[at], Infinity) : [make("p", { className: "note" }, "Nothing is changed.")]));
  const changes = run.changes[at] === null ? "" : `, ${count(group, run.changes[at])}`;
  const cost = run.cost?.[at] ? `, cost ${run.cost[at]}` : "";
  const target = run.target && run.target[at] >= 0 ? `, target ${group.set.name(run.target[at])}` : "";
  made.append(make("p", { className: "note" }, `${group.set.name(run.before[at])} → ${group.set.name(run.after[at])}${target}: ${outcomes[run.outcome[at]]}${changes}${cost}; ${run.queries[at]} queries${run.outcome[at] === FOUND ? `, found in step ${run.step[at]}` : ""}`));
  return made;
};

const PAGE = 24;
for (const holder of document.querySelectorAll("[data-samples]")) {
  const { groups } = samples;
  const [gallery, detail, output] = [make("div", { className: "gallery" }), make("section", { className: "detail", hidden: true, tabIndex: -1 }), make("output")];
  const choice = make("select", {}, ...groups.map((group, at) => new Option(group.title, at)));
  const order = make("select", {}, new Option("fewest changes first", "easy"), new Option("most changes first", "hard"), new Option("by row", "row"));
  const query = make("input", { type: "search", size: 12 });
  let [page, rows, open] = [0, [], null];
  const group = () => groups[choice.value];
  const list = () => {
    const mine = group();
    gallery.classList.toggle("words", Boolean(mine.runs[0]?.words));
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    const text = (row) => `row ${row} class ${mine.set.name(mine.set.labels[mine.set.where.get(row)])}`.toLowerCase();
    rows = mine.rows.filter((row) => words.every((word) => text(row).split(" ").includes(word) || (word.length > 1 && text(row).includes(word))));
    if (order.value !== "row") {
      const [wrong, rest] = [rows.filter((row) => mine.best.get(row).changes === 0), rows.filter((row) => mine.best.get(row).changes > 0)];
      const [changes, sign] = [(row) => mine.best.get(row).changes, order.value === "easy" ? 1 : -1];
      rest.sort((a, b) => (changes(a) === changes(b) ? a - b : sign * (changes(a) < changes(b) ? -1 : 1)));
      rows = [...rest, ...wrong]; // what is wrong already comes last
    }
  };
  const draw = () => {
    page = Math.max(0, Math.min(page, Math.ceil(rows.length / PAGE) - 1));
    const shown = rows.slice(page * PAGE, (page + 1) * PAGE);
    output.value = rows.length ? `${page * PAGE + 1}–${page * PAGE + shown.length} of ${rows.length}` : "No row matches.";
    [previous.disabled, next.disabled] = [page === 0, (page + 1) * PAGE >= rows.length];
    gallery.replaceChildren(...shown.map((row) => preview(group(), row)));
  };
  const turn = (by) => { page += by; draw(); announce(output.value); };
  const [previous, next] = [button("← Previous", () => turn(-1)), button("Next →", () => turn(1))];
  const close = () => { detail.hidden = true; open = null; history.replaceState(null, "", "#samples"); };
  const show = (row) => {
    const mine = group();
    open = row;
    const step = (by) => { const to = rows[rows.indexOf(open) + by]; if (to !== undefined) location.hash = `#sample-${choice.value}-${to}`; };
    const clean = mine.set.clean ? [make("article", {}, make("h4", {}, "clean"), make("div", { className: "pair" }, make("figure", {}, paint(make("canvas", { role: "img", aria: { label: `Row ${row} as it is` } }), mine.set.shape, mine.set.clean(row), []))))] : [];
    detail.replaceChildren(
      make("header", {}, make("h3", {}, `Row ${row}, class ${mine.set.name(mine.set.labels[mine.set.where.get(row)])}`), button("← Previous sample", () => step(-1)), button("Next sample →", () => step(1)), button("Copy link", () => copy(location.href, "the link to this sample")), button("Close", close)),
      make("p", {}, verdict(mine, row)),
      make("div", { className: "cards" }, ...clean, ...mine.runs.filter((run) => run.where.has(row)).map((run) => card(mine, row, run))));
    detail.hidden = false;
    detail.onkeydown = ({ key }) => { if (key === "ArrowLeft") step(-1); else if (key === "ArrowRight") step(1); else if (key === "Escape") close(); };
    detail.setAttribute("aria-label", `Row ${row}`);
    detail.focus();
    detail.scrollIntoView({ block: "start" });
  };
  const follow = () => { // an address that names a sample opens it
    const [, which, row] = location.hash.match(/^#sample-(\d+)-(\d+)$/) ?? [];
    if (!groups[which]?.best.has(Number(row))) return;
    if (choice.value !== which) { choice.value = which; query.value = ""; list(); draw(); }
    if (!rows.includes(Number(row))) { query.value = ""; list(); draw(); }
    show(Number(row));
  };
  const again = () => { page = 0; list(); draw(); };
  for (const control of [choice, order]) control.addEventListener("change", again);
  query.addEventListener("input", again);
  const label = (text, control) => make("label", {}, `${text} `, control);
  holder.append(make("div", { className: "tools" }, ...(groups.length > 1 ? [label("Model", choice)] : []), label("Order", order), label("Class or row", query), previous, output, next), detail, gallery);
  addEventListener("hashchange", follow);
  again();
  follow();
}
for (const canvas of document.querySelectorAll("[data-strip]")) {
  const [group, row, run] = canvas.dataset.strip.split(" ").map(Number);
  const { set, runs } = samples.groups[group];
  paint(canvas, set.shape, set.clean(row), runs[run].edits[runs[run].where.get(row)]);
}
for (const canvas of document.querySelectorAll("[data-map]")) {
  const { width, values } = data("maps")[canvas.dataset.map];
  const shares = bytes(values);
  Object.assign(canvas, { width, height: shares.length / width });
  const pen = canvas.getContext("2d");
  shares.forEach((share, at) => { pen.fillStyle = `rgb(${MORE} / ${Math.sqrt(share / 255)})`; pen.fillRect(at % width, Math.floor(at / width), 1, 1); });
}

// A store that is being filled: ask how far it is, and load the report again when there is something new. ---------------
const live = data("live");
if (live) {
  const [progress, report, trouble] = ["progress", "report", "trouble"].map((id) => document.getElementById(id));
  let shown = null;
  const ask = async () => {
    try {
      const answer = await fetch("progress", { cache: "no-store" });
      if (!answer.ok) throw new Error(`the answer was ${answer.status}`);
      const { version, html, error } = await answer.json();
      trouble.hidden = !error;
      trouble.textContent = error || "";
      if (!error) {
        progress.innerHTML = html; // escaped where it was made
        if (shown !== null && shown !== version) {
          const { scrollX, scrollY } = report.contentWindow; // the reader stays at the same place
          report.addEventListener("load", () => report.contentWindow.scrollTo(scrollX, scrollY), { once: true });
          report.contentWindow.location.reload();
        }
        shown = version;
      }
    } catch {
      trouble.hidden = false;
      trouble.textContent = "No answer: sigmazero view has ended. The page shows the last state.";
    }
    setTimeout(ask, live.milliseconds);
  };
  ask();
}
