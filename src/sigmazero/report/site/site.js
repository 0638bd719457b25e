// The order of a board: the ranks come with the page, this only puts the rows where they say.
(() => {
  "use strict";
  const { data, announce } = window.sigmazero;
  const orders = data("orders") ?? {};
  document.querySelectorAll("select[data-board]").forEach((select) => {
    const name = select.dataset.board;
    const table = document.getElementById(`${name}-table`).querySelector("table");
    const written = [...table.tBodies[0].rows];
    const show = () => {
      for (const [place, rank] of orders[name][Number(select.value)]) {
        const row = written[place];
        row.querySelector(".rank").textContent = rank ?? "–";
        if (rank === null) delete row.cells[0].dataset.value;
        else row.cells[0].dataset.value = String(rank);
        table.tBodies[0].append(row);
      }
      table.tHead.querySelectorAll("th").forEach((head) => head.setAttribute("aria-sort", "none"));
    };
    select.closest(".choice").hidden = false;
    select.addEventListener("change", () => {
      show();
      announce(`Ranked by ${select.selectedOptions[0].textContent}`);
    });
    if (select.value !== "0") show(); // the browser may remember a choice
  });
})();
