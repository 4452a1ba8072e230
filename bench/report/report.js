"use strict";
// Sorts tables by a click on a heading, and opens the answer that an address points to. Nothing else.
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      const rows = [...body.rows];
      const was = head.getAttribute("aria-sort");
      // Of figures people want the largest first, of names the first.
      const start = rows.some((row) => row.cells[column].dataset.key !== undefined) ? "descending" : "ascending";
      const order = was === null ? start : was === "ascending" ? "descending" : "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const sign = order === "ascending" ? 1 : -1;
      body.append(...rows.sort((a, b) => compare(a.cells[column], b.cells[column], sign)));
    });
  });
}
// What has no figure stays at the end in both directions: it is not small, it was not measured.
function compare(a, b, sign) {
  const x = a.dataset.key, y = b.dataset.key;
  if (x !== undefined && y !== undefined) return sign * (Number(x) - Number(y));
  if (x !== undefined || y !== undefined) return x !== undefined ? -1 : 1;
  return sign * a.textContent.localeCompare(b.textContent);
}
function reveal() {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  if (target && target.tagName === "DETAILS") { target.open = true; target.scrollIntoView(); }
}
addEventListener("hashchange", reveal);
reveal();
