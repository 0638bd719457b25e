// The explorer: pick a row, see what every attack did to it.
(() => {
  "use strict";
  const { data, make, copy, isDark, pictures, longList, downloads } = window.sigmazero;
  const groups = data("samples") ?? [];
  const outcomes = data("outcomes") ?? {};
  const [ALREADY, FOUND] = [0, 1];

  const figure = (canvas, label, caption) => {
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", label);
    return make("figure", {}, canvas, make("figcaption", {}, caption));
  };

  // The fewest changes that any attack needed, per row; what tells easy rows from hard ones.
  const hardness = (group) =>
    group.rows.map((row) => {
      const found = group.cells.map((cell) => cell.l0[cell.where.get(row)]).filter((l0) => l0 !== null && l0 !== undefined);
      return found.length ? Math.min(...found) : Infinity;
    });

  const named = (group, number) => group.classes?.[number] ?? number;

  // What became of each feature, by name; every text goes in as text.
  const changeList = (changes) => make("ul", { className: "changes" }, ...changes.map(([name, before, after, cost]) =>
    make("li", {}, make("b", {}, name), ` ${before} → ${after}`, ...(cost === null ? [] : [make("small", {}, ` cost ${cost}`)]))));

  const pair = (name, value) => [make("dt", {}, name), make("dd", {}, String(value))];

  // The search, question by question, on the canvases of its card.
  const player = (group, place, path, [image, map]) => {
    const clean = pictures.clean(group, place);
    const frames = path.map(([question, l0, prediction, index, value]) => {
      const [places, values] = [new Uint32Array(pictures.bytes(index).buffer), pictures.bytes(value)];
      return { text: `query ${question}: l0 ${l0}, ${named(group, prediction)}`, changed: Array.from(places, (at, k) => [at, values[k]]) };
    });
    const slider = make("input", { type: "range", min: 0, max: frames.length - 1, value: frames.length - 1, aria: { label: "Question of the search" } });
    const text = make("output", {}, `${frames.length} of the search’s questions`);
    const button = make("button", { type: "button" }, "▶ Play the search");
    let timer = null;
    const draw = () => {
      const frame = frames[Number(slider.value)];
      pictures.paint(image, group.shape, pictures.adversarial(clean, frame.changed));
      pictures.paintChanges(map, group.shape, clean, frame.changed);
      text.textContent = frame.text;
      slider.setAttribute("aria-valuetext", frame.text);
    };
    const stop = () => {
      clearInterval(timer);
      timer = null;
      button.textContent = "▶ Play the search";
    };
    button.addEventListener("click", () => {
      if (timer !== null) return stop();
      slider.value = 0;
      draw();
      button.textContent = "■ Stop";
      timer = setInterval(() => {
        if (!button.isConnected || Number(slider.value) >= frames.length - 1) return stop();
        slider.value = Number(slider.value) + 1;
        return draw();
      }, 160);
      return undefined;
    });
    slider.addEventListener("input", () => {
      stop();
      draw();
    });
    return make("div", { className: "player" }, button, slider, text);
  };

  const card = (group, place, cell) => {
    const at = cell.where.get(group.rows[place]);
    const name = cell.budget === null ? cell.attack : `${cell.attack}, budget ${cell.budget}`;
    const mark = make("i", { aria: { hidden: "true" } });
    mark.style.background = isDark() ? cell.dark : cell.light;
    if (at === undefined) return make("article", { className: "card" }, make("h6", {}, mark, name, make("span", { className: "tag" }, "not run yet")));
    const [outcome, l0, after] = [cell.outcome[at], cell.l0[at], cell.after[at]];
    const kind = outcome === FOUND ? "fooled" : outcome === ALREADY ? "" : "missed";
    const children = [make("h6", {}, mark, name, make("span", { className: `tag ${kind}` }, outcomes[outcome]))];
    if (group.pixels) {
      const clean = pictures.clean(group, place);
      const changed = pictures.changes(cell, at);
      const [image, map] = [make("canvas"), make("canvas")];
      pictures.paint(image, group.shape, pictures.adversarial(clean, changed));
      pictures.paintChanges(map, group.shape, clean, changed);
      children.push(make("div", { className: "images" },
        figure(image, `Row ${group.rows[place]} after ${name}: ${outcomes[outcome]}, classified as ${named(group, after)}`, "adversarial"),
        figure(map, `Changed pixels: ${changed.length} of ${clean.length} values differ`, "changes")));
    }
    const path = cell.paths?.[group.rows[place]];
    if (path) children.push(player(group, place, path, children.at(-1).querySelectorAll("canvas")));
    if (cell.changes) children.push(cell.changes[at].length ? changeList(cell.changes[at]) : make("p", { className: "empty" }, "Nothing is changed."));
    const goal = cell.target ? pair("target", named(group, cell.target[at])) : [];
    const price = cell.cost ? pair("cost", cell.cost[at] ?? "∞") : [];
    children.push(make("dl", {}, ...pair("prediction", `${named(group, cell.before[at])} → ${named(group, after)}`), ...goal, ...price,
      ...pair(cell.unit === "pixel" ? "l0, pixels" : "l0", l0 ?? "∞"), ...pair("queries", cell.queries[at]),
      ...pair("step found", cell.step[at] < 0 ? "–" : cell.step[at])));
    return make("article", { className: "card" }, ...children);
  };

  // The changes that are proved to be needed, if they are; 0 otherwise.
  const proved = (group, place, model) =>
    Math.max(0, ...group.cells.filter((cell) => cell.model === model && cell.least).map((cell) => cell.least[cell.where.get(group.rows[place])] ?? 0));

  // Per model, the fewest changes that sufficed, who found them, and how near that is to what is proved.
  const fewest = (group, place, model) => {
    const runs = group.cells.filter((cell) => cell.model === model && cell.budget === null && cell.where.has(group.rows[place]));
    const found = runs.map((cell) => cell.l0[cell.where.get(group.rows[place])]);
    const least = Math.min(...found.map((l0) => l0 ?? Infinity));
    const bound = proved(group, place, model);
    const after = bound ? `; at least ${bound} needed, which is proved` : "";
    if (!runs.length) return `runs with budgets only${after}`;
    if (least === 0) return "wrong already";
    if (least === Infinity) return `not fooled${after}`;
    const by = `by ${runs.filter((_, i) => found[i] === least).map((cell) => cell.attack).join(", ")}`;
    if (bound === least) return `exactly ${least}, ${by}; that fewer cannot do it is proved`;
    return bound ? `at least ${bound}, which is proved, and at most ${least}, ${by}` : `${least} changed, ${by}`;
  };

  const show = (group, place, view) => {
    const row = group.rows[place];
    const models = [...new Set(group.cells.map((cell) => cell.model))];
    const least = make("dl", { className: "least" }, ...models.flatMap((model) => pair(model, fewest(group, place, model))));
    const head = make("div", {}, make("h4", {}, `Row ${row}, class ${named(group, group.labels[place])}`), least);
    const parts = [make("div", { className: "head" }, head)];
    if (group.pixels) {
      const canvas = make("canvas");
      pictures.paint(canvas, group.shape, pictures.clean(group, place));
      parts[0].prepend(make("div", { className: "images clean" }, figure(canvas, `Row ${row} as it is, class ${named(group, group.labels[place])}`, "clean")));
    }
    for (const model of models) {
      const mine = group.cells.filter((cell) => cell.model === model);
      parts.push(make("h5", {}, model), make("div", { className: "cards" }, ...mine.map((cell) => card(group, place, cell))));
    }
    view.replaceChildren(...parts);
  };

  // Every run of every sample on the page, a line each.
  const table = (group) => {
    const head = ["row", "class", "model", "attack", "budget", "outcome", "before", "after", "l0", "proved at least", "queries", "step found"];
    const lines = group.cells.flatMap((cell) => cell.rows.map((row, at) => [
      row, named(group, group.labels[group.places.get(row)]), cell.model, cell.attack, cell.budget, outcomes[cell.outcome[at]],
      named(group, cell.before[at]), named(group, cell.after[at]), cell.l0[at] ?? "inf", cell.least?.[at] ?? "", cell.queries[at], cell.step[at]]));
    return downloads.csv([head, ...lines]);
  };

  const explore = (holder) => {
    const number = Number(holder.dataset.group);
    const group = groups[number];
    if (!group.rows.length) return;
    for (const cell of group.cells) cell.where = new Map(cell.rows.map((row, at) => [row, at]));
    if (group.images) pictures.decode(group);
    group.places = new Map(group.rows.map((row, place) => [row, place]));
    const hard = hardness(group);
    const view = make("div", { className: "sample" });
    const said = make("p", { className: "off-screen", aria: { live: "polite" } }); // the whole view would be too much to hear
    const order = make("select", {}, new Option("row number", "row"), new Option("fewest changes first", "easy"), new Option("most changes first", "hard"));
    const nothing = make("p", { className: "empty", hidden: true }, "No row matches.");
    const words = (place) => `row ${group.rows[place]}, class ${named(group, group.labels[place])}, l0 ${hard[place] === Infinity ? "∞" : hard[place]}`;

    const search = make("input", { type: "search", placeholder: words(Math.floor(group.rows.length / 2)).split(", l0 ")[0] }); // one that is there

    const every = group.rows.map((_, place) => place);
    const texts = every.map((place) => words(place).toLowerCase().replaceAll(",", ""));
    let shown = null;
    let ready = false; // a page that nobody has touched keeps the address it was opened with

    const address = (place) => `#sample-${number}-${group.rows[place]}`;
    const open = () => {
      if (shown === null) return;
      show(group, shown, view);
      said.textContent = words(shown);
    };
    const list = longList("Sample (l0: the fewest of all attacks)", words, (place) => {
      if (place === shown) return;
      shown = place;
      open();
      if (ready) history.replaceState(null, "", address(place));
    });
    const fill = (wanted) => {
      const asked = search.value.toLowerCase().split(/[\s,]+/).filter(Boolean).join(" ");
      const places = asked ? every.filter((place) => texts[place].includes(asked)) : [...every];
      if (order.value !== "row") places.sort((a, b) => (order.value === "easy" ? 1 : -1) * (hard[a] === hard[b] ? 0 : hard[a] - hard[b]) || a - b);
      nothing.hidden = places.length > 0;
      list.fill(places, wanted);
    };
    // An address that names a sample opens it.
    const follow = () => {
      const [, which, row] = location.hash.match(/^#sample-(\d+)-(\d+)$/) ?? [];
      const place = group.places.get(Number(row));
      if (Number(which) !== number || place === undefined) return;
      search.value = "";
      fill(place);
      holder.scrollIntoView({ block: "start" });
    };
    const link = make("button", { type: "button" }, "Copy link");
    link.addEventListener("click", () => copy(`${location.href.split("#")[0]}${address(list.place())}`, "the link to this sample"));
    const csv = make("button", { type: "button" }, "Save CSV");
    csv.addEventListener("click", () => downloads.save(`${downloads.safe(holder.dataset.title)}.csv`, table(group), "text/csv"));
    const previous = make("button", { type: "button" }, "← Previous");
    const next = make("button", { type: "button" }, "Next →");
    previous.addEventListener("click", () => list.step(-1));
    next.addEventListener("click", () => list.step(1));
    order.addEventListener("change", () => fill(null)); // another order is asked for to see its first
    search.addEventListener("input", () => fill());
    document.addEventListener("themechange", open);
    const label = (text, control) => make("label", {}, text, control);
    holder.append(make("div", { className: "picker" }, label("Find", search), label("Order", order), make("div", { className: "named" }, "Sample (l0: the fewest of all attacks)", list.box), nothing,
      make("div", { className: "step" }, previous, next), make("div", { className: "step" }, link, csv)), view, said);
    fill();
    follow();
    ready = true;
    addEventListener("hashchange", follow);
  };

  document.querySelectorAll("[data-group]").forEach(explore);
})();
