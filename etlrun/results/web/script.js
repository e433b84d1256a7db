"use strict";

const results = JSON.parse(document.getElementById("results").textContent);
const table = document.getElementById("configs");
const rows = [...table.tBodies[0].rows];

/* Sorting: by the exact number if there is one, else by the text; unknown values are last in both directions. */
function key(row, column) {
  const cell = row.cells[column];
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const text = cell.textContent;
  return text === "" || text === "-" ? null : text;
}

const byWords = new Intl.Collator(undefined, { numeric: true }).compare;

function compare(one, other, sign) {
  if (one === null || other === null) return (one === null) - (other === null);
  return sign * (typeof one === "string" ? byWords(one, other) : one - other);
}

function sortBy(head) {
  const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
  for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const keys = new Map(rows.map((row) => [row, key(row, head.cellIndex)]));
  rows.sort((one, other) => compare(keys.get(one), keys.get(other), order === "ascending" ? 1 : -1));
  table.tBodies[0].replaceChildren(); // appending rows that are still in the table takes Chromium 10 s for 10,000
  table.tBodies[0].append(...rows);
  filter();
}

for (const head of table.tHead.rows[0].cells) {
  head.querySelector("button").addEventListener("click", () => sortBy(head));
}

/* Filtering: a row has all the words, and the result. Browsers take seconds to lay out more rows than this. */
const MOST = 500;
const words = document.getElementById("words");
const result = document.getElementById("result");
const texts = new Map(
  rows.map((row) => [row, [row.dataset.overrides, ...[...row.cells].map((cell) => cell.textContent)].join(" ").toLowerCase()]),
);

function filter() {
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  let fitting = 0;
  for (const row of rows) {
    const fits =
      wanted.every((word) => texts.get(row).includes(word)) &&
      (!result?.value || row.querySelector(".result").textContent === result.value);
    fitting += fits;
    row.hidden = !fits || fitting > MOST;
  }
  const first = fitting > MOST ? `the first ${MOST} of ` : "";
  document.getElementById("shown").textContent = `${first}${fitting} of ${rows.length} configs`;
}

words.addEventListener("input", filter);
result?.addEventListener("change", filter);
filter();

/* Copying: if the browser denies pages on disk the clipboard, the overrides are selected. */
const command = document.getElementById("command");
document.getElementById("copy")?.addEventListener("click", async () => {
  const message = document.getElementById("copied");
  try {
    await navigator.clipboard.writeText(command.textContent);
    message.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(command);
    message.textContent = document.execCommand("copy") ? "Copied" : "Selected: copy with the keyboard";
  }
});

/* Two runs: stages with the same name are on the same line. */
const sides = [...document.querySelectorAll(".side")];

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text;
  made.className = kind;
  return made;
}

function lines(own, other) {
  const names = other.map((row) => row[0]);
  const merged = [];
  let from = 0;
  for (const row of own) {
    const at = names.indexOf(row[0], from);
    if (at >= 0) {
      merged.push(...other.slice(from, at).map((each) => ({ other: each })));
      from = at + 1;
    }
    merged.push({ own: row, other: at >= 0 ? other[at] : undefined });
  }
  return [...merged, ...other.slice(from).map((each) => ({ other: each }))];
}

function showStages() {
  const chosen = sides.map((side) => results.runs[side.querySelector("select").selectedIndex]);
  const merged = lines(chosen[0].rows, chosen[1].rows);
  sides.forEach((side, number) => {
    side.querySelector(".label").textContent = chosen[number].label;
    const shown = side.querySelector("table");
    const head = element("tr", "", "head");
    results.header.forEach((name, column) => head.append(element("th", name, results.kinds[column])));
    shown.replaceChildren(head);
    for (const line of merged) {
      const row = number ? line.other : line.own;
      const made = document.createElement("tr");
      if (!row) made.className = "absent";
      const cells = row ?? [(line.own ?? line.other)[0], "not in this run"];
      cells.forEach((text, column) => made.append(element(column ? "td" : "th", text, results.kinds[row ? column : 0])));
      if (!row) made.lastChild.colSpan = results.header.length - 1;
      shown.append(made);
    }
  });
}

sides.forEach((side, number) => {
  const select = side.querySelector("select");
  results.runs.forEach((run) => select.append(element("option", run.label, "")));
  const name = results.chosen[number] ?? results.chosen[0];
  select.selectedIndex = Math.max(0, results.runs.findIndex((run) => run.name === name));
  select.addEventListener("change", showStages);
});
if (sides.length) showStages();
