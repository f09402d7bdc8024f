// The table of a file.

const changes = byId("changes");
const narrow = matchMedia("screen and (max-width: 900px)");
let printing = false;
let unified = stored("layout") === "unified";
const sideBySide = () => !unified && !narrow.matches && !printing;

// How a table is laid out: its columns, of which "before" and "after" hold both number and code.
const LAYOUTS = {
  split: [["Line before", "no"], ["Before", "text"], ["Line after", "no"], ["After", "text"]],
  unified: [["Line before", "no"], ["Line after", "no"], ["Code", "text"]],
  plain: [["Line", "no"], ["Code", "text"]], // nothing changes in it
};
const layoutOf = (file, part) => !file.hunks.some((hunk) => hunk.cell === part.cell) ? "plain"
  : sideBySide() ? "split" : "unified";

const tag = (code, unsafe = false) => make("button", { type: "button",
  class: unsafe ? "code unsafe" : "code", "data-rule": code,
  title: data.rules[code] ? data.rules[code].summary : code }, ...painted(code));

function fileName(path) {
  const at = path.lastIndexOf("/") + 1;
  return make("bdi", { class: "path" },
    make("span", { class: "folder" }, ...painted(path.slice(0, at))),
    make("b", {}, ...painted(path.slice(at))));
}

const statusMark = (status) => make("span",
  { class: `mark ${status}`, role: "img", "aria-label": STATUSES[status][2], title: STATUSES[status][2] },
  STATUSES[status][0]);

const isFinding = (kind) => (item) => !item.hunk && item.notes[0].kind === kind;

/** What is in a file, in words: "3 changes, 2 reported". */
function counts(file) {
  const left = file.notes.filter((note) => note.kind === "left").length;
  const advice = file.items.filter(isFinding("advice")).length;
  return [
    file.hunks.length && counted(file.hunks.length, "change"),
    left && `${left} reported${file.effort ? ` (${file.effort})` : ""}`,
    advice && `${advice} advice`,
  ].filter(Boolean).join(", ");
}

function sectionOf(file) {
  const id = `file-${file.number}`;
  const body = make("div", { class: "body", id: `${id}-body` });
  const fold = make("button", { type: "button", class: "icon fold", "aria-expanded": "true",
    "aria-controls": body.id, "aria-label": `Show ${file.name}` }, "▾");
  fold.addEventListener("click", () => setOpen(file, body.hidden));
  const all = make("button", { type: "button", class: "link all" }, "All lines");
  all.addEventListener("click", () => showAll(file));
  const head = make("header", { class: "file-head" }, fold, statusMark(file.status),
    make("h2", { id, tabindex: "-1" }, fileName(file.path)),
    make("span", { class: "counts" }, counts(file)), file.parts.length ? all : null);
  const section = make("section", { class: "file", "aria-labelledby": id }, head, body);
  Object.assign(file, { section, body, fold, all });
  return section;
}

function setOpen(file, open) {
  file.body.hidden = !open;
  file.fold.setAttribute("aria-expanded", String(open));
  file.fold.textContent = open ? "▾" : "▸";
  look();
}

function clear(file) {
  file.rendered = false;
  file.body.replaceChildren();
}

/** About the height that a file will have, so that the page hardly moves when it is shown. */
function reserve(file) {
  if (file.rendered) return;
  const rows = file.shown.map((item) => 2 * CONTEXT + 1 + (item.hunk ? item.end - item.start : 3));
  const lines = file.parts.reduce((sum, part) => sum + part.lines, 0) + 3 * rows.length;
  const height = ROW * Math.min(lines, rows.reduce((sum, n) => sum + n, 4 * file.lines.length));
  file.body.style.minHeight = `${height}px`;
}

/** Show files that are near the window, which the observer of each has found. */
const observer = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) render(files[Number(entry.target.dataset.number)]);
  }
}, { rootMargin: "1200px 0px" });

/** Ask the observer once more: it tells changes only. */
function look() {
  for (const file of files) {
    if (!file.section || file.rendered) continue;
    observer.unobserve(file.body);
    if (file.listed && !file.body.hidden) observer.observe(file.body);
  }
}

function render(file) {
  if (file.rendered || !file.section) return;
  file.rendered = true;
  observer.unobserve(file.body);
  const { parts } = textOf(file);
  const said = new Map(); // sentences that stand above already, and where
  const about = file.shown.filter((item) => partNumber(file, item.cell) < 0);
  const tables = file.parts.map((part, number) => {
    const layout = layoutOf(file, part);
    const lines = { layout, before: parts[number], colours: colours(parts[number], file.python), said };
    const rows = [...pieces(file, part, number)].flatMap((p) => rowsOf(file, part, number, p, lines));
    if (!rows.length) return null;
    const caption = part.cell ? `Cell ${part.cell}` : file.notebook ? "Notebook" : "";
    return make("div", { class: "part" },
      caption ? make("h3", {}, caption) : null,
      table(`${file.name} ${caption}`, layout, rows));
  });
  file.body.replaceChildren(
    ...about.map((item) => make("div", { class: "alone" }, finding(file, item, said))),
    ...tables.filter(Boolean));
  file.body.style.minHeight = "";
  file.all.textContent = isAll(file) ? "Only what matters" : "All lines";
}

function table(title, layout, rows) {
  const columns = LAYOUTS[layout];
  return make("table", { class: `diff ${layout}` },
    make("caption", { class: "sr" }, title),
    make("colgroup", {}, ...columns.map(([, name]) => make("col", { class: name }))),
    make("thead", { class: "sr" },
      make("tr", {}, ...columns.map(([head]) => make("th", { scope: "col" }, head)))),
    make("tbody", {}, ...rows));
}

/** What a part shows, in order: lines that are equal, hunks, findings, and what is folded. */
function* pieces(file, part, number) {
  const hunks = file.hunks.filter((hunk) => hunk.cell === part.cell);
  const items = file.shown.filter((item) => item.cell === part.cell);
  const shows = new Set(items);
  const byHand = file.opened.get(part.cell) || [];
  let open = [...byHand];
  for (const item of items) open.push([item.start - CONTEXT, item.end + CONTEXT]);
  for (const [, line] of file.lines.filter(([at]) => at === number)) open.push([line - 1, line + 2]);
  if (!open.length) return;
  open = joined(open, part.lines);
  const findings = items.filter((item) => !item.hunk);
  let at = 0;
  let delta = 0; // from the number of a line before to that after

  /** Equal lines up to `to`, with what is folded and the findings below their line. */
  function* equal(to) {
    while (at < to) {
      const here = open.find(([start, end]) => start <= at && at < end);
      const next = open.find(([start]) => start > at);
      if (!here) {
        const end = Math.min(next ? next[0] : to, to);
        yield { fold: true, from: at, to: end, first: at === 0, last: end === part.lines };
        at = end;
        continue;
      }
      let end = Math.min(here[1], to);
      const note = findings.find((item) => Math.max(1, item.end) > at && item.end <= end);
      if (note) end = Math.max(note.end, at + 1);
      if (end > at) yield { lines: true, from: at, to: end, delta };
      at = end;
      yield* below();
    }
  }

  function* below() {
    while (findings.length && findings[0].end <= at) yield { item: findings.shift() };
  }

  for (const hunk of hunks) {
    yield* equal(hunk.start);
    const seen = shows.has(hunk) || byHand.some(([start, end]) =>
      start <= hunk.start && hunk.end <= end && end > start);
    if (seen) yield { item: hunk };
    else yield { fold: true, change: hunk, from: hunk.start, to: hunk.end };
    at = hunk.end;
    delta = hunk.newEnd - hunk.end;
    yield* below();
  }
  yield* equal(part.lines);
  for (const item of findings.splice(0)) yield { item };
}

/** Ranges in order, joined where it is not worth to fold what is between. */
function joined(ranges, count) {
  const found = [];
  for (const [start, end] of ranges.sort((a, b) => a[0] - b[0])) {
    const last = found[found.length - 1];
    if (last && start - last[1] <= FOLDED) last[1] = Math.max(last[1], end);
    else found.push([start <= FOLDED ? 0 : start, end]);
  }
  const last = found[found.length - 1];
  if (count - last[1] <= FOLDED) last[1] = count;
  return found;
}

function rowsOf(file, part, number, piece, lines) {
  if (piece.lines) return equalRows(piece, lines);
  if (piece.fold) return [wide("folded", lines, ...folded(file, part, piece, lines))];
  if (!piece.item.hunk) return [wide("finding", lines, finding(file, piece.item, lines.said))];
  return hunkRows(file, piece.item, lines);
}

const wide = (name, { layout }, ...content) => make("tr", { class: name },
  make("td", { colspan: String(LAYOUTS[layout].length) }, ...content));
const lineNo = (n) => make("td", { class: "no" }, n ? make("span", {}, String(n)) : "");
function lineOf(kind, side, text, ...layers) {
  const cell = make("td", { class: `text ${kind} ${side}` });
  if (text === undefined) return cell;
  cell.append(...painted(text, ...layers));
  if (text.length > WRAPS) wrapWell(cell, text);
  return cell;
}

/** What goes on in the next row stands below where the line begins, and breaks between words. */
function wrapWell(cell, text) {
  const indent = Math.min(text.length - text.trimStart().length + 4, 40);
  cell.style.setProperty("--indent", `${indent}ch`);
  cell.classList.add("wraps");
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  for (const node of nodes) {
    const pieces = node.data.split(/(?<=[([{,.=/])/u);
    if (pieces.length > 1) node.replaceWith(...pieces.flatMap((piece) => [piece, make("wbr")]));
  }
}

function equalRows({ from, to, delta }, lines) {
  const rows = [];
  for (let n = from; n < to; n++) {
    const cell = (side) => lineOf("same", side, lines.before[n], lines.colours[n] || []);
    const [old, now] = [lineNo(n + 1), lineNo(n + 1 + delta)];
    rows.push(make("tr", {}, ...{
      split: () => [old, cell("before"), now, cell("after")],
      unified: () => [old, now, cell("after")],
      plain: () => [old, cell("after")],
    }[lines.layout]()));
  }
  return rows;
}

function hunkRows(file, hunk, lines) {
  const before = lines.before.slice(hunk.start, hunk.end);
  const after = textOf(file).hunks[hunk.index];
  // colours of what came: read with the line above, which may be in a string
  const above = lines.colours[hunk.start - 1];
  const inString = above && hunk.start < lines.before.length && hunk.end > hunk.start &&
    (lines.colours[hunk.start][0] || []).join() === [0, before[0].length, "string"].join();
  const colour = inString ? after.map((line) => [[0, line.length, "string"]]) : colours(after, file.python);
  const { went, came } = movesOf(file)[hunk.index];
  const old = (row) => [went.has(row.old) ? "gone moved" : "gone", "before", before[row.old],
    lines.colours[hunk.start + row.old] || [], row.words[0]];
  const now = (row) => [came.has(row.new) ? "come moved" : "come", "after", after[row.new],
    colour[row.new] || [], row.words[1]];
  const oldNo = (row) => lineNo(row.old >= 0 ? hunk.start + row.old + 1 : 0);
  const nowNo = (row) => lineNo(row.new >= 0 ? hunk.newStart + row.new + 1 : 0);
  const paired = pairedLines(before, after, went, came);
  let rows;
  if (lines.layout === "unified") {
    rows = [
      ...paired.filter((r) => r.old >= 0).map((r) =>
        make("tr", {}, oldNo(r), lineNo(0), lineOf(...old(r)))),
      ...paired.filter((r) => r.new >= 0).map((r) =>
        make("tr", {}, lineNo(0), nowNo(r), lineOf(...now(r)))),
    ];
  } else {
    rows = paired.map((r) => make("tr", {},
      oldNo(r), r.old >= 0 ? lineOf(...old(r)) : lineOf("none", "before"),
      nowNo(r), r.new >= 0 ? lineOf(...now(r)) : lineOf("none", "after")));
  }
  return [wide("hunk", lines, hunkHead(file, hunk, lines.said)), ...rows];
}

const safetyTag = (safety) => make("span", { class: `safety ${safety}`, title: SAFETIES[safety]?.[1] },
  safety === "unsafe" ? `⚠ unsafe: ${data.safeties.unsafe}` : safety);

const anchor = (file, item) => make("a", { class: "anchor", "aria-label": "Link to this place",
  href: address(file, item) }, "#");

function hunkHead(file, hunk, said) {
  const codes = [...new Set(hunk.by.map((note) => note.code))];
  const unsafe = new Set(hunk.by.filter((note) => note.safety === "unsafe").map((note) => note.code));
  const summary = codes.length === 1 && data.rules[codes[0]] ? data.rules[codes[0]].summary : "";
  const reasons = hunk.by.flatMap((n) => [n.message, n.safety === "unsafe" ? n.why : ""]);
  const told = new Set([summary, ...reasons].filter((text) => text && !said.has(text)));
  for (const text of told) said.set(text, hunk);
  const first = hunk.by.length ? told.delete(summary) && summary : LABELS[hunk.label];
  return make("div", { class: unsafe.size ? "head unsafe" : "head", tabindex: "-1", id: itemId(file, hunk) },
    make("div", { class: "tags" },
      ...codes.map((code) => tag(code, unsafe.has(code))),
      make("span", { class: "summary" }, ...prose(first || "")),
      hunk.by.length ? safetyTag(unsafe.size ? "unsafe" : "safe") : null,
      anchor(file, hunk)),
    ...[...told].map((text) => make("p", {}, ...prose(text))),
    ...moved(file, hunk).map((text) => make("p", { class: "moves" }, text)));
}

/** Where lines of a hunk went, and where others came from, in words. */
function moved(file, hunk) {
  const { went, came } = movesOf(file)[hunk.index];
  const old = (moves) => linesOf([...moves.values()].map((move) => move.from.start + move.i + 1));
  const now = (moves) => linesOf([...moves.values()].map((move) => move.to.newStart + move.j + 1));
  return [
    went.size ? `Moved: ${old(went)}, now ${now(went)}.` : "",
    came.size ? `Moved: ${now(came)}, before ${old(came)}.` : "",
  ].filter(Boolean);
}

/** "line 3", "lines 3–7, 12": what is at most two lines apart is told as one. */
function linesOf(numbers) {
  const found = [];
  for (const n of numbers.sort((a, b) => a - b)) {
    const last = found[found.length - 1];
    if (last && n - last[1] <= 3) last[1] = n;
    else found.push([n, n]);
  }
  const said = found.map(([start, end]) => (start === end ? `${start}` : `${start}–${end}`));
  return `line${numbers.length > 1 ? "s" : ""} ${said.join(", ")}`;
}

function finding(file, item, said) {
  const [note] = item.notes;
  const key = `${note.code} ${note.message}`;
  const first = said.get(key);
  if (!first) said.set(key, item);
  const where = (at) => `${at.cell ? `cell ${at.cell}, ` : ""}line ${at.notes[0].line}`;
  return make("div", { class: `note ${note.kind}`, tabindex: "-1", id: itemId(file, item) },
    make("div", { class: "tags" },
      make("b", { class: "kind" }, KINDS[note.kind][0]),
      tag(note.code),
      note.effort ? make("span", { class: `effort effort-${note.effort}` }, note.effort) : null,
      note.safety === "unsafe" ? safetyTag("unsafe") : null,
      note.construct ? make("code", { class: "construct" }, ...painted(note.construct)) : null,
      first ? make("a", { class: "again", href: address(file, first) }, `as in ${where(first)}`) : null,
      anchor(file, item)),
    note.message && !first ? make("p", {}, ...prose(note.message)) : null,
    note.why && !first ? make("p", {}, ...prose(note.why)) : null);
}

/** The buttons of a row that stands for what is folded. */
function folded(file, part, piece, lines) {
  const { from, to, change } = piece;
  const count = to - from;
  const text = change ? "1 change that the filters leave out" : counted(count, "line");
  if (printing) return [text];
  if (lines.before[from] === undefined && count) return [`${text}, not in this report`];
  const show = (start, end, label, title) => make("button", { type: "button", class: "link", title,
    onclick: (event) => reveal(file, part.cell, start, end, event.target) }, label);
  if (change) return [show(from, Math.max(to, from + 1), `Show ${text}`)];
  const buttons = [show(from, to, `Show ${text}`)];
  if (count > 2 * STEP) {
    if (!piece.first) buttons.unshift(show(from, from + STEP, `↓ ${STEP}`, `${STEP} lines below`));
    if (!piece.last) buttons.push(show(to - STEP, to, `↑ ${STEP}`, `${STEP} lines above`));
  }
  return buttons;
}

/** Show folded lines; the keyboard's focus goes on to what follows. */
function reveal(file, cell, start, end, button) {
  const links = () => [...file.body.querySelectorAll(".folded button, .head, .note")];
  const place = links().indexOf(button);
  file.opened.set(cell, [...(file.opened.get(cell) || []), [start, end]]);
  redraw(file);
  const next = links()[Math.min(place, links().length - 1)];
  if (next) next.focus({ preventScroll: true });
}

const isAll = (file) => file.parts.every((part) =>
  (file.opened.get(part.cell) || []).some(([start, end]) => start <= 0 && end >= part.lines));

function showAll(file) {
  if (isAll(file)) file.opened.clear();
  else for (const part of file.parts) file.opened.set(part.cell, [[0, part.lines + 1]]);
  redraw(file);
}

function redraw(file) {
  clear(file);
  render(file);
}
