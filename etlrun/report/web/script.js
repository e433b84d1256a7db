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

/* Filtering: a row has all the words, and the chosen texts. Browsers take seconds to lay out more rows than this. */
const MOST = 500;

function element(name, text, kind) {
  const made = document.createElement(name);
  made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function choices(table, rows) {
  return [...table.tHead.rows[0].cells].filter((head) => head.dataset.choice !== undefined).map((head) => {
    const select = document.createElement("select");
    const texts = new Set(rows.map((row) => row.cells[head.cellIndex].textContent));
    select.append(new Option("all", ""), ...[...texts].map((text) => new Option(text)));
    const name = head.textContent;
    const label = element("label", `${name[0].toUpperCase()}${name.slice(1)} `);
    label.append(select);
    return { column: head.cellIndex, label, select };
  });
}

for (const table of document.querySelectorAll("table.sorted")) {
  const rows = [...table.tBodies[0].rows];
  const controls = table.closest("section").querySelector(".controls");
  const [words, shown] = [controls.querySelector(".words"), controls.querySelector(".shown")];
  const chosen = choices(table, rows);
  for (const each of chosen) shown.before(each.label);
  const texts = new Map(
    rows.map((row) => [row, [row.dataset.words ?? "", ...[...row.cells].map((cell) => cell.textContent)].join(" ").toLowerCase()]),
  );

  const filter = () => {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    let fitting = 0;
    for (const row of rows) {
      const fits =
        wanted.every((word) => texts.get(row).includes(word)) &&
        chosen.every(({ column, select }) => !select.value || row.cells[column].textContent === select.value);
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
  for (const { select } of chosen) select.addEventListener("change", filter);
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

/* Two tables side by side: rows with the same name are on the same line. */
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

for (const choice of document.querySelectorAll(".choice")) {
  const texts = (row) => [...row.cells].map((cell) => cell.textContent);
  const held = [...choice.querySelector("template").content.querySelectorAll("table")];
  const tables = held.map((table) => ({ label: table.dataset.label, rows: [...table.rows].slice(1).map(texts) }));
  const [header, chosen] = [texts(held[0].rows[0]), JSON.parse(choice.dataset.chosen)];
  const sides = [...choice.querySelectorAll(".side")];
  const isFigure = header.map((_, column) => tables.some((table) => table.rows.some((row) => /^[\d.,]+( MB)?$/.test(row[column]))));

  const show = () => {
    const shown = sides.map((side) => tables[side.querySelector("select").selectedIndex]);
    const merged = lines(shown[0].rows, shown[1].rows);
    sides.forEach((side, number) => {
      side.querySelector(".label").textContent = shown[number].label;
      const head = element("tr", "");
      header.forEach((name, column) => head.append(element("th", name, isFigure[column] ? "figure strong" : "strong")));
      side.querySelector("table").replaceChildren(head);
      for (const line of merged) {
        const row = number ? line.other : line.own;
        const made = element("tr", "", row ? "" : "absent");
        const cells = row ?? [(line.own ?? line.other)[0], "not here"];
        cells.forEach((text, column) => made.append(element(column ? "td" : "th", text, row && isFigure[column] ? "figure" : "")));
        if (!row) made.lastChild.colSpan = header.length - 1;
        side.querySelector("table").append(made);
      }
    });
  };

  sides.forEach((side, number) => {
    const select = side.querySelector("select");
    select.append(...tables.map((table) => new Option(table.label)));
    select.selectedIndex = Math.max(0, tables.findIndex((table) => table.label === (chosen[number] ?? chosen[0])));
    select.addEventListener("change", show);
  });
  show();
}
