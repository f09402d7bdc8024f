// What is shown: filters, search.

const chosen = { outcome: new Set(), safety: new Set(), rule: new Set(), status: new Set() };
let query = "";
let folder = ""; // what paths have to hold

/** A single letter is everywhere, so it is not searched for. */
function setQuery() {
  const text = byId("query").value.trim().toLowerCase();
  query = text.length > 1 ? text : "";
}

const fits = (set, value) => !set.size || set.has(value);

function noteFits(note) {
  if (note.kind === "kept" && !chosen.outcome.size && !chosen.rule.size) return false;
  return fits(chosen.outcome, note.kind) && fits(chosen.rule, note.code) &&
    fits(chosen.safety, note.safety);
}

const isFiltered = () => Boolean(chooses() || chosen.status.size || query || folder);

const chooses = () => chosen.outcome.size || chosen.safety.size || chosen.rule.size;

/** Text that a search looks through, once for each item. */
function searchable(file, item) {
  if (item.text === undefined) {
    const said = item.notes.flatMap((n) => [n.code, n.construct, n.message, n.why]);
    if (item.hunk) {
      const { parts, hunks } = textOf(file);
      const lines = parts[partNumber(file, item.cell)] || [];
      said.push(...lines.slice(item.start, item.end), ...hunks[item.index]);
    }
    item.text = said.filter(Boolean).join("\n").toLowerCase();
  }
  return item.text;
}

const partNumber = (file, cell) => file.parts.findIndex((part) => part.cell === cell);

/** Lines that hold what is searched for, but for those of hunks that do: [part, line]. */
function linesFound(file) {
  if (!file.lower) file.lower = textOf(file).parts.map((p) => p.map((l) => l.toLowerCase()));
  const inHunk = (part, n) => file.shown.some((item) => item.hunk &&
    item.cell === file.parts[part].cell && item.start <= n && n < item.end);
  return file.lower.flatMap((lines, part) => lines.flatMap((line, n) =>
    line.includes(query) && !inHunk(part, n) ? [[part, n]] : []));
}

/** Choose what is shown of each file, by the filters and the search. */
function choose() {
  for (const file of files) {
    file.shown = file.items.filter((item) => item.notes.some(noteFits));
    file.lines = [];
    const named = file.path.toLowerCase();
    let here = fits(chosen.status, file.status) && named.includes(folder);
    if (query && here && !named.includes(query)) {
      file.shown = file.shown.filter((item) => searchable(file, item).includes(query));
      file.lines = chooses() || !file.parts.length ? [] : linesFound(file);
      here = file.shown.length > 0 || file.lines.length > 0;
    } else if (chooses()) {
      here = here && file.shown.length > 0;
    }
    file.here = here;
    file.listed = here && (file.shown.length > 0 || file.lines.length > 0);
  }
}

function announce() {
  const here = files.filter((file) => file.here);
  const items = here.flatMap((file) => file.shown);
  const changes = items.filter((item) => item.hunk).length;
  const lines = here.reduce((sum, file) => sum + file.lines.length, 0);
  const said = [[changes, "change"], [items.length - changes, "finding"], [lines, "line"]]
    .filter(([n]) => n).map((words) => counted(...words)).join(", ");
  byId("count").textContent =
    `${said || "Nothing"} in ${here.length.toLocaleString("en")} of ${counted(files.length, "file")}`;
  byId("nothing").hidden = here.length > 0 || !files.length;
}

let drawn = ""; // the search whose hits are marked in what is rendered
const equal = (a, b) => a.length === b.length && a.every((item, n) => item === b[n]);

/** Show what the filters choose, everywhere. */
function update() {
  const before = files.map((file) => file.shown);
  choose();
  for (const file of files) {
    if (!file.section) continue;
    file.section.hidden = !file.listed;
    const same = query === drawn && equal(before[file.number], file.shown);
    if (file.rendered && !same) clear(file);
    if (file.listed) reserve(file);
  }
  drawn = query;
  showTree();
  announce();
  for (const [name, set] of Object.entries(chosen)) {
    for (const control of document.querySelectorAll(`[data-facet="${name}"]`)) {
      const on = set.has(control.value);
      if (control.type === "checkbox") control.checked = on;
      else control.setAttribute("aria-pressed", String(on));
    }
  }
  byId("rules-chosen").textContent = chosen.rule.size ? ` (${chosen.rule.size})` : "";
  byId("clear").hidden = !isFiltered();
  document.querySelector(".overview").hidden = isFiltered(); // what was asked for comes first
  remember();
  look();
}
