// Real tables become sortable by their headings, filterable by words, and copyable in the formats given.
(() => {
  "use strict";
  const { data, make, announce, copy } = window.sigmazero;
  const copies = data("copies") ?? {};
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
      const button = make("button", { type: "button", title: head.title }, ...head.childNodes);
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

    const buttons = Object.entries(copies[holder.dataset.table] ?? {}).map(([format, text]) => {
      const button = make("button", { type: "button" }, `Copy ${format}`);
      button.addEventListener("click", () => copy(text, format));
      return button;
    });
    const tools = original.length > 3 || buttons.length ? [make("div", { className: "tools" }, box, count, ...buttons)] : [];
    holder.querySelector(".scroll").before(...tools);
    holder.append(nothing);
  };

  document.querySelectorAll("[data-table]").forEach(enhance);
})();
