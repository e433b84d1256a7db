"use strict";

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
  return sign * (typeof one === "string" ? byWords(one, String(other)) : one - other);
}

/* Filtering: a row has all the words. Browsers take seconds to lay out more rows than this. */
const MOST = 500;

for (const table of document.querySelectorAll("table.sorted")) {
  const rows = [...table.tBodies[0].rows];
  const controls = table.closest("section").querySelector(".controls");
  const [words, shown] = [controls.querySelector(".words"), controls.querySelector(".shown")];
  const texts = new Map(
    rows.map((row) => [row, [row.dataset.words ?? "", ...[...row.cells].map((cell) => cell.textContent)].join(" ").toLowerCase()]),
  );

  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let fitting = 0;
    for (const row of rows) {
      const fits = wanted.every((word) => texts.get(row).includes(word));
      fitting += fits;
      row.hidden = !fits || fitting > MOST;
    }
    const first = fitting > MOST ? `the first ${MOST} of ` : "";
    shown.textContent = `${first}${fitting} of ${rows.length}`;
  };

  for (const head of table.tHead.rows[0].cells) {
    head.querySelector("button").addEventListener("click", () => {
      const order = head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      for (const each of table.tHead.rows[0].cells) each.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const keys = new Map(rows.map((row) => [row, key(row, head.cellIndex)]));
      rows.sort((one, other) => compare(keys.get(one), keys.get(other), order === "ascending" ? 1 : -1));
      table.tBodies[0].replaceChildren(); // appending rows that are still in the table takes Chromium 10 s for 10,000
      table.tBodies[0].append(...rows);
      filter();
    });
  }
  words.addEventListener("input", filter);
  filter();
}

/* Copying: if the browser denies pages on disk the clipboard, the text is selected. */
for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", async () => {
    const [text, message] = [button.parentElement.querySelector("pre"), button.parentElement.querySelector(".copied")];
    try {
      await navigator.clipboard.writeText(text.textContent);
      message.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(text);
      message.textContent = document.execCommand("copy") ? "Copied" : "Selected: copy with the keyboard";
    }
  });
}
