// A list of any length: only the rows in sight are in the page, so ten thousand scroll as ten do.
window.sigmazero.longList = (() => {
  "use strict";
  const { make } = window.sigmazero;
  const HEIGHT = 28; // of a row, as in the style sheet
  const SPARE = 8; // rows kept ready above and below
  let lists = 0;

  return (label, words, onPick) => {
    const name = `list-${lists}`;
    lists += 1;
    const space = make("div", { className: "space" });
    const box = make("div", { className: "rows", tabIndex: 0, role: "listbox", aria: { label } }, space);
    let [places, chosen, first, last] = [[], -1, 0, -1];

    const option = (at) => {
      const node = make("div", { id: `${name}-${at}`, className: "row", role: "option", aria: { selected: String(at === chosen), setsize: places.length, posinset: at + 1 } }, words(places[at]));
      node.style.top = `${HEIGHT * at}px`;
      node.dataset.at = at;
      return node;
    };
    const draw = (anew = false) => {
      const from = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - SPARE);
      const to = Math.min(places.length - 1, Math.ceil((box.scrollTop + box.clientHeight) / HEIGHT) + SPARE);
      if (!anew && from === first && to === last) return;
      [first, last] = [from, to];
      space.replaceChildren(...Array.from({ length: Math.max(0, to - from + 1) }, (_, k) => option(from + k)));
    };
    const show = (at) => {
      const top = HEIGHT * at;
      if (top < box.scrollTop) box.scrollTop = top;
      else if (top + HEIGHT > box.scrollTop + box.clientHeight) box.scrollTop = top + HEIGHT - box.clientHeight;
    };
    const pick = (at, told = true) => {
      if (at < 0 || at >= places.length) return;
      chosen = at;
      show(at);
      draw(true);
      box.setAttribute("aria-activedescendant", `${name}-${at}`);
      if (told) onPick(places[at]);
    };
    // Other rows, the chosen one kept where it is among them; otherwise the first.
    const fill = (next, wanted = chosen >= 0 ? places[chosen] : undefined) => {
      places = next;
      space.style.height = `${HEIGHT * places.length}px`;
      chosen = places.length ? Math.max(0, places.indexOf(wanted)) : -1;
      box.removeAttribute("aria-activedescendant");
      if (chosen < 0) {
        box.scrollTop = 0;
        draw(true);
      } else pick(chosen);
    };

    const page = () => Math.max(1, Math.floor(box.clientHeight / HEIGHT) - 1);
    const keys = {
      ArrowDown: () => chosen + 1, ArrowUp: () => chosen - 1, Home: () => 0, End: () => places.length - 1,
      PageDown: () => Math.min(places.length - 1, chosen + page()), PageUp: () => Math.max(0, chosen - page()),
    };
    box.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      pick(keys[event.key]());
    });
    box.addEventListener("click", (event) => {
      const row = event.target.closest(".row");
      if (row) pick(Number(row.dataset.at));
    });
    box.addEventListener("scroll", () => draw());
    new ResizeObserver(() => draw()).observe(box);
    return { box, fill, step: (by) => pick(chosen + by), place: () => (chosen < 0 ? null : places[chosen]) };
  };
})();
