// Real tables become sortable by their headings, filterable by words, and copyable in the formats given.
(() => {
  "use strict";
  const { data, make, announce, copy } = window.sigmazero;
  const copies = data("copies") ?? {};
  const picks = data("picks") ?? {};
  const NEXT = { none: "ascending", ascending: "descending", descending: "none" };

  const key = (row, column) => {
    const cell = row.cells[column];
    if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
    const text = cell.textContent.trim();
    return text === "" || text === "–" ? null : text;
  };

  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a === b ? 0 : a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  };

  // What is not known stands last in either direction.
  const sorted = (rows, column, direction) =>
    [...rows].sort((left, right) => {
      const [a, b] = [key(left, column), key(right, column)];
      if (a === null || b === null) return (a === null) - (b === null);
      return direction === "descending" ? compare(b, a) : compare(a, b);
    });

  // Success rates at numbers of changes of the reader's choice; all texts were made with the page.
  const choice = (chosen, heads, rows) => {
    const lists = chosen.columns.map((column, place) => {
      const list = make("select", { aria: { label: `k of column ${place + 1} of the success rates` } }, ...chosen.ks.map((k) => new Option(k, k)));
      list.value = chosen.chosen[place];
      list.addEventListener("change", () => {
        const at = chosen.ks.indexOf(Number(list.value));
        const head = heads[column];
        head.setAttribute("aria-sort", "none");
        (head.querySelector("button") ?? head).textContent = chosen.headings[at];
        rows.forEach((row, number) => {
          const [text, value, ends, best] = chosen.rows[number][at];
          const cell = row.cells[column];
          const parts = [text, ...(ends ? [make("small", { className: "ends" }, ` ${ends}`)] : [])];
          if (value === null) delete cell.dataset.value;
          else cell.dataset.value = value;
          cell.replaceChildren(...(best ? [make("strong", {}, ...parts)] : parts));
        });
        announce(`Column shows ${chosen.headings[at]}`);
      });
      return list;
    });
    return make("span", { className: "picks" }, "k", ...lists);
  };

  // Intervals are there, and shown when asked for.
  const ends = (holder) => {
    if (!holder.querySelector(".ends")) return [];
    const button = make("button", { type: "button", aria: { pressed: "false" } }, "95 % intervals");
    button.addEventListener("click", () => {
      const shown = holder.classList.toggle("with-ends");
      button.setAttribute("aria-pressed", String(shown));
    });
    return [button];
  };

  const enhance = (holder) => {
    const table = holder.querySelector("table");
    const body = table.tBodies[0];
    const original = [...body.rows];
    const heads = [...table.tHead.rows[0].cells];
    const caption = holder.querySelector(".caption").textContent;

    const sortBy = (head, column) => {
      const direction = NEXT[head.getAttribute("aria-sort")];
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", direction);
      body.prepend(...(direction === "none" ? original : sorted(original, column, direction)));
      announce(direction === "none" ? "Original order" : `Sorted by ${head.textContent}, ${direction}`);
    };
    heads.forEach((head, column) => {
      const button = make("button", { type: "button", title: head.title, className: head.title ? "explained" : "" }, ...head.childNodes);
      head.removeAttribute("title");
      head.setAttribute("aria-sort", "none");
      head.append(button);
      button.addEventListener("click", () => sortBy(head, column));
    });

    const box = make("input", { type: "search", placeholder: "Filter rows", aria: { label: `Filter rows of ${caption}` } });
    const count = make("span", { className: "count" });
    const nothing = make("p", { className: "empty", hidden: true });
    const filter = () => {
      const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of original) {
        const text = [...row.cells].map((cell) => cell.textContent).join(" ").toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = words.length ? `${shown} of ${original.length} rows` : "";
      nothing.hidden = shown > 0;
      nothing.textContent = `No row has “${box.value.trim()}”.`;
      if (words.length) announce(`${shown} of ${original.length} rows`);
    };
    box.addEventListener("input", filter);

    const chosen = picks[holder.dataset.table];
    const choices = chosen ? [choice(chosen, heads, original)] : [];
    const changed = () => chosen && [...choices[0].querySelectorAll("select")].some((list, n) => Number(list.value) !== chosen.chosen[n]);
    const buttons = Object.entries(copies[holder.dataset.table] ?? {}).map(([format, text]) => {
      const button = make("button", { type: "button" }, `Copy ${format}`);
      button.addEventListener("click", () => copy(text, changed() ? `${format}, with k as the page was made` : format));
      return button;
    });
    const tools = original.length > 3 || buttons.length ? [make("div", { className: "tools" }, box, count, ...ends(holder), ...choices, ...buttons)] : [];
    holder.querySelector(".scroll").before(...tools);
    holder.append(nothing);
  };

  document.querySelectorAll("[data-table]").forEach(enhance);
})();
