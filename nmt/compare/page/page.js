"use strict";
// What the page can do beyond being read: sorting, filters. Without it all can be read.

const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const byId = (id) => document.getElementById(id);

document.documentElement.classList.add("js"); // shows the controls

// Sorting: each heading of a column becomes a button.
function sortable(table) {
  for (const heading of all("th[data-c]", table)) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sort(table, heading));
  }
}

function sort(table, heading) {
  const column = Number(heading.dataset.c);
  const up = heading.getAttribute("aria-sort") !== "ascending";
  for (const other of all("th[aria-sort]", table)) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", up ? "ascending" : "descending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, key: keyOf(row.cells[column]) }));
  rows.sort((a, b) => compare(a.key, b.key, up ? 1 : -1));
  body.append(...rows.map(({ row }) => row));
}

function keyOf(cell) {
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v);
  const words = cell.textContent.trim();
  return words === "\u2013" ? null : words; // a dash: there is no value
}

function compare(a, b, sign) {
  if (a === null || b === null) return (a === null) - (b === null); // the missing come last
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
}

// A box that opens all details of its kind around it: the intervals of a table, the sources read.
function opener(box) {
  const around = box.closest(".with-tool, section");
  const open = () => {
    for (const part of all(box.dataset.opens, around)) part.open = box.checked;
  };
  box.addEventListener("change", open);
  if (box.checked) open(); // a browser may have kept it from an earlier visit
}

// Examples: only those of a test set, a bucket, a reason.
function filters() {
  const choosers = all("select[data-filter]");
  const examples = all(".example");
  const narrow = () => {
    const fits = (example) =>
      choosers.every(({ dataset, value }) => !value || example.dataset[dataset.filter] === value);
    let shown = 0;
    for (const example of examples) {
      example.hidden = !fits(example);
      shown += !example.hidden;
    }
    byId("filtered").textContent = `${shown} of ${examples.length} shown`;
  };
  for (const chooser of choosers) chooser.addEventListener("change", narrow);
  if (choosers.length) narrow();
}

// Attention: one panel for each system and bucket.
function panels() {
  const system = byId("panel-system");
  const place = byId("panel-place");
  if (!system) return;
  const show = () => {
    let found = false;
    for (const panel of all(".panel")) {
      const { dataset } = panel;
      panel.hidden = dataset.system !== system.value || dataset.place !== place.value;
      found ||= !panel.hidden;
    }
    byId("no-panel").hidden = found;
  };
  system.addEventListener("change", show);
  place.addEventListener("change", show);
  show(); // a browser may have kept a choice from an earlier visit
}

all("table.sortable").forEach(sortable);
all("input[data-opens]").forEach(opener);
filters();
panels();
addEventListener("beforeprint", () => all("td details").forEach((cell) => (cell.open = true)));
