"use strict";
// The script of the report. From top to bottom: data, text (colours, differences of words, marks),
// what is shown (filters, search), a file's table, the tree, moving about, the page's controls.
(() => {
  const byId = (id) => document.getElementById(id);
  const parsed = (id) => JSON.parse(byId(id).textContent);

  /** An element with properties and children; text is never read as HTML. */
  function make(name, properties = {}, ...children) {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(properties)) {
      if (value === undefined || value === null || value === false) continue;
      if (key === "class") element.className = value;
      else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
      else if (key in element && typeof value !== "string") element[key] = value;
      else element.setAttribute(key, value);
    }
    element.append(...children.flat().filter((child) => child !== undefined && child !== null));
    return element;
  }

  // Can not be seen, or turn the direction of what follows: shown by their numbers.
  const UNSEEN = new RegExp(
    "[\\0-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b\\u200e\\u200f\\u2028-\\u202e\\u2060-\\u2069" +
    "\\ufeff]", "gu");
  const visible = (text) => text.replace(UNSEEN, (c) =>
    `⟨U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

  const counted = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;

  // ---- data -------------------------------------------------------------------------------------

  const CONTEXT = 3; // lines shown around what matters
  const FOLDED = 3; // so few lines are not folded
  const STEP = 20; // lines that one press shows more
  const MOVED = 0.6; // how much a line that moved has in common with what it became
  const SETTLED = 2000; // ms in which files above a place are drawn
  const WRAPS = 60; // characters of a line that may go on in the next row
  const ROW = 21; // pixels, as in report.css
  const KINDS = {
    rewritten: ["Rewritten", "constructs that were rewritten"],
    added: ["Added", "what the program gains: imports, set-up, comments"],
    left: ["Left", "constructs that are left to change by hand"],
    advice: ["Advice", "nothing is wrong, but a TPU expert would mention it"],
    kept: ["Kept", "right as they stand: shown when chosen here, or by their rule"],
    failed: ["Failed", "could not be processed"],
  };
  const LABELS = {
    imports: "Imports that follow from other changes",
    comments: "Comments for what is left",
    metadata: "What the notebook asks for",
  };

  const data = parsed("data");
  const change = data.written ? "changed" : "would change";
  const STATUSES = {
    failed: ["✕", "Failed", "could not be processed"],
    left: ["!", "Left", "something is left to change by hand"],
    changed: ["✓", data.written ? "Changed" : "Would change", `${change}, nothing is left`],
    clean: ["–", "Clean", "nothing to do"],
  };
  const SAFETIES = {
    safe: ["Safe", data.safeties.safe],
    unsafe: ["Unsafe", `${data.safeties.unsafe}: made with --unsafe, or left without it`],
  };
  const files = data.files.map(fileOf);
  const numbers = new Map(files.map((file) => [file.path, file.number]).reverse());

  /** A file with its items: what a filter chooses, and what one can move to, in order. */
  function fileOf(entry, number) {
    const notes = (entry.notes || []).map((note, index) => ({
      ...note, index, cell: note.cell || 0, end: note.end || note.line,
      message: data.messages[note.message] || "", why: data.messages[note.why] || "",
    }));
    const hunks = (entry.hunks || []).map((hunk, index) => {
      const by = (hunk.by || []).map((n) => notes[n]);
      const [start, end, newStart, newEnd] = hunk.at;
      const notesOf = by.length ? by : [{ kind: "added", safety: "safe" }];
      return { hunk: true, index, cell: hunk.cell || 0, start, end, newStart, newEnd,
        by, notes: notesOf, label: hunk.label || "" };
    });
    const made = new Set(hunks.flatMap((hunk) => hunk.by));
    const findings = notes.filter((note) => !made.has(note)).map((note) => {
      const end = note.end - note.line > 6 ? note.line : note.end; // below a call, not a function
      return { index: note.index, cell: note.cell, start: note.line - 1, end, notes: [note] };
    });
    const items = [...hunks, ...findings];
    items.sort((a, b) => a.cell - b.cell || a.start - b.start || a.end - b.end);
    const parts = entry.parts || [];
    return { ...entry, number, name: visible(entry.path), notes, hunks, items, parts, shown: [], opened: new Map() };
  }

  /** The lines of each part before, by their index, and those that each hunk puts in their place. */
  function textOf(file) {
    if (file.text) return file.text;
    const source = byId(`text-${file.number}`);
    const { before, after } = source ? JSON.parse(source.textContent) : { before: [], after: [] };
    const parts = before.map((pieces) => {
      const lines = [];
      for (const [start, text] of pieces) {
        text.split("\n").forEach((line, n) => { lines[start + n] = line; });
      }
      return lines;
    });
    const hunks = after.map((text, n) => {
      const { newStart, newEnd } = file.hunks[n];
      return newEnd > newStart ? text.split("\n") : [];
    });
    file.text = { parts, hunks };
    return file.text;
  }

  const beforeOf = (file, hunk) =>
    (textOf(file).parts[partNumber(file, hunk.cell)] || []).slice(hunk.start, hunk.end);

  // ---- text -------------------------------------------------------------------------------------

  const words = (text) => new Set(text.split(" "));
  const KEYWORDS = words("and as assert async await break case class continue def del elif else " +
    "except finally for from global if import in is lambda match nonlocal not or pass raise " +
    "return try while with yield");
  const BUILTINS = words("None True False self cls print len range enumerate zip map filter list " +
    "dict set tuple int float str bool bytes type super isinstance getattr setattr hasattr open " +
    "sum min max abs any all sorted reversed iter next property staticmethod classmethod");
  const PYTHON = new RegExp(
    "(?<comment>#.*)|(?<string>\\b[rbfut]{0,2}(?:\"\"\"|'''|\"|')|\"\"\"|'''|\"|')|" +
    "(?<decorator>^\\s*@[\\w.]+)|(?<number>\\b\\d[\\w.]*)|(?<word>[^\\W\\d]\\w*)", "giu");
  const PLAIN = new RegExp(
    "(?<comment>(?:^|(?<=\\s))(?:#|//).*)|(?<string>\"|')|(?<key>^[\\s-]*[\\w.-]+(?=\\s*[:=]))|" +
    "(?<number>(?<![\\w.-])\\d[\\w.]*)", "giu");
  const LONG = 2000; // characters of a line that is generated: no colours

  /** For each line its coloured ranges [start, end, class]; lines that are not there are passed. */
  function colours(lines, python) {
    let open = ""; // the quotes of a string that goes on in the next line
    const found = [];
    lines.forEach((line, number) => {
      const ranges = [];
      found[number] = ranges;
      let at = 0;
      if (open) {
        const end = stringEnd(line, 0, open);
        ranges.push([0, end < 0 ? line.length : end, "string"]);
        if (end < 0) return;
        at = end;
        open = "";
      }
      if (line.length > LONG) return;
      const pattern = python ? PYTHON : PLAIN;
      let previous = "";
      pattern.lastIndex = at;
      for (let match; (match = pattern.exec(line)); ) {
        const [kind, text] = Object.entries(match.groups).find(([, value]) => value !== undefined);
        let name = kind;
        let end = pattern.lastIndex;
        if (kind === "string") {
          const quotes = text.replace(/^\w+/u, "");
          end = stringEnd(line, end, quotes);
          if (end < 0) {
            if (quotes.length === 3) open = quotes;
            end = line.length;
          }
          pattern.lastIndex = end;
        } else if (kind === "key") {
          name = "defined";
        } else if (kind === "word") {
          if (KEYWORDS.has(text)) name = "keyword";
          else if (previous === "def" || previous === "class") name = "defined";
          else if (BUILTINS.has(text)) name = "builtin";
          else name = "";
          previous = text;
        }
        if (name) ranges.push([match.index, end, name]);
        if (end >= line.length) break;
      }
    });
    return found;
  }

  /** Behind the closing quotes, or -1. */
  function stringEnd(line, from, quotes) {
    for (let at = from; at < line.length; at++) {
      if (line[at] === "\\") at++;
      else if (line.startsWith(quotes, at)) return at + quotes.length;
    }
    return -1;
  }

  /** The pairs [i, j] of two sequences that fit best, in order; `score` of a pair is 0 or more. */
  function align(a, b, score) {
    const width = b.length + 1;
    const best = new Float32Array((a.length + 1) * width);
    const scores = new Float32Array(a.length * b.length);
    for (let i = a.length - 1; i >= 0; i--) {
      for (let j = b.length - 1; j >= 0; j--) {
        const own = score(a[i], b[j]);
        scores[i * b.length + j] = own;
        best[i * width + j] = Math.max(
          best[(i + 1) * width + j], best[i * width + j + 1],
          own ? own + best[(i + 1) * width + j + 1] : 0);
      }
    }
    const pairs = [];
    for (let i = 0, j = 0; i < a.length && j < b.length; ) {
      const own = scores[i * b.length + j];
      const here = best[i * width + j];
      if (own && here <= Math.fround(own + best[(i + 1) * width + j + 1])) pairs.push([i++, j++]);
      else if (here <= best[(i + 1) * width + j]) i++;
      else j++;
    }
    return pairs;
  }

  const split = (line) => line.match(/\w+|\s+|[^\w\s]/gu) || [];

  /** How much two lines have in common, from 0 to 1; 0 below a half. */
  function alike(a, b) {
    const left = split(a).filter((word) => word.trim());
    const right = split(b).filter((word) => word.trim());
    const rest = new Map();
    for (const word of left) rest.set(word, (rest.get(word) || 0) + 1);
    let common = 0;
    for (const word of right) {
      if (rest.get(word)) {
        rest.set(word, rest.get(word) - 1);
        common += 1;
      }
    }
    const share = (2 * common) / (left.length + right.length || 1);
    return share >= 0.4 ? share : 0;
  }

  /**
   * The lines of a hunk side by side, with the words that differ where two belong together; lines
   * that moved, which are not beside what they became, are in `went` and `came` by their index.
   */
  function pairedLines(before, after, went, came) {
    const score = (i, j) => went.has(i) || came.has(j) ? 0 : alike(before[i], after[j]);
    const few = before.length * after.length <= 2500;
    const pairs = few ? align([...before.keys()], [...after.keys()], score) : [];
    const rows = [];
    let [i, j] = [0, 0];
    for (const [k, l] of [...pairs, [before.length, after.length]]) {
      while (i < k || j < l) {
        const [old, now] = [i < k ? i++ : -1, j < l ? j++ : -1];
        rows.push({ old, new: now, words: [went.get(old)?.words[0] || [], came.get(now)?.words[1] || []] });
      }
      if (k < before.length) {
        rows.push({ old: i++, new: j++, words: changedWords(before[k], after[l]) });
      }
    }
    return rows;
  }

  /** Lines that an edit took from one hunk to another: of each, its index there and the words. */
  function movesOf(file) {
    if (file.moves) return file.moves;
    file.moves = file.hunks.map(() => ({ went: new Map(), came: new Map() }));
    const found = [];
    for (const note of new Set(file.hunks.flatMap((hunk) => hunk.by))) {
      const hunks = file.hunks.filter((hunk) => hunk.by.includes(note));
      if (hunks.length < 2) continue;
      const texts = hunks.map((hunk) => [beforeOf(file, hunk), textOf(file).hunks[hunk.index]]);
      const best = (line, others) => Math.max(0, ...others.map((other) => alike(line, other)));
      if (texts.flatMap((t) => t[0]).length * texts.flatMap((t) => t[1]).length > 10_000) continue;
      texts.forEach(([before, near], n) => before.forEach((line, i) => texts.forEach(([far, after], m) => {
        if (n === m || split(line.trim()).length < 3) return;
        after.forEach((other, j) => {
          const score = alike(line, other);
          if (score >= MOVED && score > best(line, near) && score > best(other, far)) {
            found.push({ score, from: hunks[n], i, to: hunks[m], j, words: changedWords(line, other, true) });
          }
        });
      })));
    }
    for (const move of found.sort((a, b) => b.score - a.score)) {
      const [{ went }, { came }] = [file.moves[move.from.index], file.moves[move.to.index]];
      if (went.has(move.i) || came.has(move.j)) continue;
      went.set(move.i, move);
      came.set(move.j, move);
    }
    return file.moves;
  }

  /** The ranges of words that differ; `shifted`: however far the lines are indented. */
  function changedWords(a, b, shifted = false) {
    const [left, right] = [split(a), split(b)];
    if (left.length * right.length > 40_000) return [[], []];
    const same = align(left, right, (x, y) => (x === y ? (x.trim() ? 1 : 0.1) : 0));
    const kept = [0, 1].map((side) => new Set(same.map((pair) => pair[side])));
    if (shifted) {
      [left, right].forEach((parts, side) => { if (!parts[0]?.trim()) kept[side].add(0); });
    }
    return [ranges(left, kept[0]), ranges(right, kept[1])];
  }

  function ranges(parts, same) {
    const found = [];
    let at = 0;
    parts.forEach((part, n) => {
      const last = found[found.length - 1];
      if (!same.has(n)) {
        if (last && last[1] === at) last[1] = at + part.length;
        else found.push([at, at + part.length, "word"]);
      }
      at += part.length;
    });
    return found;
  }

  /** Where the search's words are in a text, as ranges. */
  function hits(text) {
    const found = [];
    if (!query) return found;
    const lower = text.toLowerCase();
    if (lower.length !== text.length) return found; // İ: places would be off
    for (let at = lower.indexOf(query); at >= 0; at = lower.indexOf(query, at + query.length)) {
      found.push([at, at + query.length, "hit"]);
    }
    return found;
  }

  /** A text as nodes, with the classes of all ranges that cover each piece. */
  function painted(text, ...layers) {
    const all = [...layers.flat(), ...hits(text)];
    const cuts = new Set([0, text.length]);
    for (const [start, end] of all) cuts.add(start).add(end);
    const sorted = [...cuts].sort((a, b) => a - b);
    const nodes = [];
    for (let n = 0; n + 1 < sorted.length; n++) {
      const [start, end] = [sorted[n], sorted[n + 1]];
      const names = all.filter((r) => r[0] <= start && end <= r[1]).map((r) => r[2]);
      const piece = visible(text.slice(start, end));
      const name = names.includes("hit") ? "mark" : "span";
      nodes.push(names.length ? make(name, { class: names.join(" ") }, piece) : piece);
    }
    return nodes;
  }

  /** A sentence whose `code` is code. */
  const prose = (text) => text.split("`").flatMap((piece, n) =>
    n % 2 ? [make("code", {}, ...painted(piece))] : painted(piece));

  // ---- what is shown ----------------------------------------------------------------------------

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

  // ---- a file -----------------------------------------------------------------------------------

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

  const tag = (code) => make("button", { type: "button", class: "code", "data-rule": code,
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

  /** What is in a file, in words: "3 changes, 2 left". */
  function counts(file) {
    const left = file.notes.filter((note) => note.kind === "left").length;
    const advice = file.items.filter(isFinding("advice")).length;
    return [
      file.hunks.length && counted(file.hunks.length, "change"),
      left && `${left} left${file.effort ? ` (${file.effort})` : ""}`,
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
    const said = new Map(); // reasons that stand above already
    const about = file.shown.filter((item) => partNumber(file, item.cell) < 0);
    const tables = file.parts.map((part, number) => {
      const layout = layoutOf(file, part);
      const lines = { layout, before: parts[number], colours: colours(parts[number], file.python) };
      const rows = [...pieces(file, part, number)].flatMap((p) => rowsOf(file, part, number, p, lines, said));
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

  function rowsOf(file, part, number, piece, lines, said) {
    if (piece.lines) return equalRows(piece, lines);
    if (piece.fold) return [wide("folded", lines, ...folded(file, part, piece, lines))];
    if (!piece.item.hunk) return [wide("finding", lines, finding(file, piece.item, said))];
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
    return [wide("hunk", lines, hunkHead(file, hunk)), ...rows];
  }

  const safetyTag = (safety) => make("span", { class: `safety ${safety}`, title: SAFETIES[safety]?.[1] },
    safety === "unsafe" ? "⚠ unsafe" : safety);

  const anchor = (file, item) => make("a", { class: "anchor", "aria-label": "Link to this place",
    href: address(file, item) }, "#");

  function hunkHead(file, hunk) {
    const codes = [...new Set(hunk.by.map((note) => note.code))];
    const summary = codes.length === 1 && data.rules[codes[0]] ? data.rules[codes[0]].summary : "";
    const unsafe = hunk.by.some((note) => note.safety === "unsafe");
    const said = [...new Set(hunk.by.flatMap((n) => [n.message, n.safety === "unsafe" ? n.why : ""]))];
    return make("div", { class: "head", tabindex: "-1", id: itemId(file, hunk) },
      make("div", { class: "tags" },
        ...codes.map(tag),
        make("span", { class: "summary" }, ...prose(hunk.by.length ? summary : LABELS[hunk.label] || "")),
        hunk.by.length ? safetyTag(unsafe ? "unsafe" : "safe") : null,
        anchor(file, hunk)),
      ...said.filter((text) => text && text !== summary).map((text) => make("p", {}, ...prose(text))),
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

  // ---- the tree ---------------------------------------------------------------------------------

  const closed = new Set(); // folders that were closed by hand, or are since nothing is in them

  function showTree() {
    const top = { name: "", folders: new Map(), files: [] };
    for (const file of files) {
      if (!file.here) continue;
      let at = top;
      const names = file.path.split("/");
      for (const name of names.slice(0, -1)) {
        if (!at.folders.has(name)) at.folders.set(name, { name, folders: new Map(), files: [] });
        at = at.folders.get(name);
      }
      at.files.push(file);
    }
    byId("tree").replaceChildren(branch(top, ""));
  }

  function branch(node, above) {
    return make("ul", {},
      ...[...node.folders.values()].map((child) => {
        let name = child.name;
        while (!child.files.length && child.folders.size === 1) { // a/b/c in one line
          [child] = child.folders.values();
          name += `/${child.name}`;
        }
        const path = `${above}${name}/`;
        if (!closed.has(path) && !opened.has(path) && !matters(child)) closed.add(path);
        const details = make("details", { open: !closed.has(path) },
          make("summary", {}, make("bdi", {}, ...painted(`${name}/`))), branch(child, path));
        details.addEventListener("toggle", () => {
          (details.open ? opened : closed).add(path);
          (details.open ? closed : opened).delete(path);
        });
        return make("li", {}, details);
      }),
      ...node.files.map((file) => make("li", {}, leaf(file))));
  }

  const opened = new Set();
  const matters = (node) => node.files.some((file) => file.items.length || file.status !== "clean") ||
    [...node.folders.values()].some(matters);

  function leaf(file) {
    const name = make("bdi", { class: "name" }, ...painted(file.path.slice(file.path.lastIndexOf("/") + 1)));
    const left = file.notes.filter((note) => note.kind === "left").length;
    const advice = file.items.filter(isFinding("advice")).length;
    const numbers = make("span", { class: "numbers" },
      file.hunks.length ? make("span", { class: "changes", title: counted(file.hunks.length, "change") }, `±${file.hunks.length}`) : null,
      left ? make("span", { class: "left", title: `${left} left to change by hand` }, `!${left}`) : null,
      advice ? make("span", { class: "advice", title: `${advice} advice` }, `i${advice}`) : null);
    if (!file.listed) return make("span", { class: "leaf clean" }, statusMark(file.status), name);
    return make("a", { class: "leaf", href: address(file), "data-number": String(file.number),
      title: `${file.name}: ${counts(file) || STATUSES[file.status][2]}` },
      statusMark(file.status), name, numbers);
  }

  // ---- moving about -----------------------------------------------------------------------------

  let current = null; // { file, item }: where the reader is; no item: at the file's head

  const itemId = (file, item) => `${item.hunk ? "hunk" : "note"}-${file.number}-${item.index}`;

  function address(file, item) {
    const hash = new URLSearchParams({ file: file.path });
    if (item) hash.set(item.hunk ? "hunk" : "note", String(item.index + 1));
    return `#${hash}`;
  }

  /** Write the filters and the place into the address. */
  function remember() {
    const hash = new URLSearchParams();
    for (const [name, set] of Object.entries(chosen)) if (set.size) hash.set(name, [...set].join(","));
    if (folder) hash.set("path", byId("path").value);
    if (query) hash.set("q", byId("query").value);
    if (current) {
      hash.set("file", current.file.path);
      const { item } = current;
      if (item) hash.set(item.hunk ? "hunk" : "note", String(item.index + 1));
    }
    const text = String(hash);
    if (text === location.hash.slice(1)) return;
    try {
      history.replaceState(null, "", text ? `#${text}` : location.href.split("#")[0]);
    } catch {
      // too often in a short time, for some browsers: the next one counts
    }
  }

  /** Take the filters and the place from the address. */
  function recall(event) {
    const hash = new URLSearchParams(location.hash.slice(1));
    for (const [name, set] of Object.entries(chosen)) {
      set.clear();
      for (const value of (hash.get(name) || "").split(",")) if (value) set.add(value);
    }
    byId("query").value = hash.get("q") || "";
    byId("path").value = hash.get("path") || "";
    setQuery();
    folder = byId("path").value.trim().toLowerCase();
    const { file, item } = placeIn(location.hash);
    current = file ? { file, item } : null;
    update();
    if (file) go(file, item, { focus: false });
    else if (event) { release(); scrollTo(0, 0); }
  }

  /** The file and the item that an address means, if they are in this report. */
  function placeIn(address) {
    const hash = new URLSearchParams(address.slice(1));
    const file = files[numbers.get(hash.get("file"))];
    if (!file?.section) return {};
    const [hunk, note] = ["hunk", "note"].map((name) => Number(hash.get(name)) - 1);
    const item = file.hunks[hunk] ||
      file.items.find((i) => i.notes.some(({ index }) => index === note));
    return { file, item };
  }

  /** Go to a file or an item of it, and make it the current one. */
  function go(file, item, { focus = true } = {}) {
    current = { file, item };
    if (file.body.hidden) setOpen(file, true);
    render(file);
    const element = (item && byId(itemId(file, item))) || byId(`file-${file.number}`);
    const box = element.closest("tr") || element;
    const show = () => box.isConnected && box.scrollIntoView({ block: item ? "center" : "start" });
    document.querySelector(".current")?.classList.remove("current");
    box.classList.add("current");
    if (focus) element.focus({ preventScroll: true });
    hold(show);
    markFile(file);
    remember();
  }

  let release = () => {};

  /** Stay at a place while files above it are drawn, until the reader does something. */
  function hold(show) {
    release();
    show();
    const drawn = new ResizeObserver(show);
    drawn.observe(changes);
    const acts = ["wheel", "pointerdown", "touchstart", "keydown"];
    const timer = setTimeout(() => release(), SETTLED);
    release = () => {
      clearTimeout(timer);
      drawn.disconnect();
      for (const act of acts) removeEventListener(act, release);
    };
    for (const act of acts) addEventListener(act, release, { passive: true });
  }

  function markFile(file) {
    document.querySelector('.leaf[aria-current="true"]')?.removeAttribute("aria-current");
    const found = file && document.querySelector(`.leaf[data-number="${file.number}"]`);
    if (!found) return;
    found.setAttribute("aria-current", "true");
    if (!narrow.matches) found.scrollIntoView({ block: "nearest" });
  }

  const listed = () => files.filter((file) => file.listed);
  const under = () => document.querySelector(".top").getBoundingClientRect().bottom;

  /** The file that is at the top of the window, or null above all. */
  function fileInView() {
    const edge = under() + 60;
    let found = null;
    for (const file of listed()) {
      if (file.section.getBoundingClientRect().top > edge) break;
      found = file;
    }
    return found;
  }

  /** Where the reader is: the current item while it can be seen, else what is in view. */
  function place() {
    if (current?.file.listed) {
      const element = current.item ? byId(itemId(current.file, current.item)) : byId(`file-${current.file.number}`);
      const box = element?.getBoundingClientRect();
      if (box && box.bottom > 0 && box.top < innerHeight) return current;
    }
    const file = fileInView();
    return file ? { file, item: null } : null;
  }

  function step(by) {
    const stops = listed().flatMap((file) => file.shown.map((item) => ({ file, item })));
    if (!stops.length) return;
    const here = place();
    let at;
    if (here?.item) at = stops.findIndex((s) => s.item === here.item) + by;
    else if (here) {
      const top = (stop) => byId(itemId(stop.file, stop.item))?.getBoundingClientRect().top ?? Infinity;
      at = stops.findIndex((s) => s.file.number > here.file.number ||
        (s.file === here.file && top(s) > under()));
      at = at < 0 ? stops.length : at;
      if (by < 0) at -= 1;
    } else at = by > 0 ? 0 : -1;
    const stop = stops[Math.max(0, Math.min(at, stops.length - 1))];
    go(stop.file, stop.item);
  }

  function stepFile(by) {
    const all = listed();
    const here = place()?.file;
    const at = here ? all.indexOf(here) + by : 0;
    if (at < 0) overview();
    else if (all[at]) go(all[at], null);
  }

  function overview() {
    current = null;
    if (isFiltered()) clearFilters();
    release();
    scrollTo(0, 0);
    byId("overview-title").focus({ preventScroll: true });
    markFile(null);
    remember();
  }

  // ---- controls ---------------------------------------------------------------------------------

  function stored(name) {
    try {
      return localStorage.getItem(`tpu-migrate-${name}`);
    } catch {
      return null; // a browser that keeps nothing for files
    }
  }

  function store(name, value) {
    try {
      localStorage.setItem(`tpu-migrate-${name}`, value);
    } catch {
      // the choice holds for this visit
    }
  }

  function setTheme(theme) {
    if (theme) document.documentElement.dataset.theme = theme;
    const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    byId("theme").firstChild.textContent = dark ? "Light" : "Dark";
    byId("theme").title = `${dark ? "Light" : "Dark"} colours (d)`;
  }

  function switchTheme() {
    const theme = byId("theme").textContent.toLowerCase();
    store("theme", theme);
    setTheme(theme);
  }

  function showLayout() {
    byId("layout").firstChild.textContent = unified ? "Side by side" : "Unified";
    byId("layout").title = `${unified ? "Before and after side by side" : "Before above after"} (u)`;
  }

  function switchLayout() {
    unified = !unified;
    store("layout", unified ? "unified" : "split");
    showLayout();
    redrawAll();
  }

  /** Draw anew what is shown, at the same place. */
  function redrawAll() {
    if (printing) return; // a page of paper is narrow, too
    const here = place();
    for (const file of files) {
      if (!file.rendered) continue;
      clear(file);
      reserve(file);
    }
    if (here) go(here.file, here.item, { focus: false });
    look();
  }

  function facet(name, values, count) {
    byId(name).replaceChildren(...Object.entries(values).flatMap(([value, words]) => {
      const n = count(value);
      if (!n) return [];
      const [label, title] = words.slice(-2);
      return [make("button", { type: "button", class: `chip ${value}`, "data-facet": name, value, title,
        "aria-pressed": "false" },
        words.length > 2 ? make("span", { class: `mark ${value}`, "aria-hidden": "true" }, words[0]) : null,
        label, make("span", { class: "n" }, n.toLocaleString("en")))];
    }));
  }

  function ruleList() {
    const counts = new Map();
    for (const note of files.flatMap((file) => file.notes)) {
      counts.set(note.code, (counts.get(note.code) || 0) + 1);
    }
    byId("rule").replaceChildren(...[...counts.keys()].sort().map((code) => make("label", {},
      make("input", { type: "checkbox", "data-facet": "rule", value: code }),
      make("b", {}, code), make("span", { class: "name" }, data.rules[code]?.name || ""),
      make("span", { class: "n" }, counts.get(code).toLocaleString("en")))));
    byId("rules-menu").hidden = !counts.size;
  }

  function clearFilters() {
    for (const set of Object.values(chosen)) set.clear();
    byId("query").value = byId("path").value = query = folder = "";
    update();
  }

  function showRule(code) {
    const rule = data.rules[code];
    const only = make("button", { type: "button", class: "primary", onclick: () => {
      byId("rule-help").close();
      chosen.rule.clear();
      chosen.rule.add(code);
      update();
      const [first] = listed();
      if (first) go(first, first.shown[0]);
    } }, "Show only this rule");
    byId("rule-help").replaceChildren(
      make("form", { method: "dialog" }, make("button", { class: "icon close", "aria-label": "Close" }, "×")),
      make("h2", { id: "rule-title" }, code, rule ? make("span", { class: "name" }, ` ${rule.name}`) : ""),
      ...(rule ? [
        make("p", { class: "lead" }, ...prose(`${rule.summary}.`)),
        make("p", {}, ...prose(rule.why)),
        make("dl", {},
          make("dt", {}, "Safety"), make("dd", {}, rule.safety),
          make("dt", {}, "Effort of what it leaves"), make("dd", {}, rule.effort),
          make("dt", {}, "Before and after"), make("dd", {}, make("code", {}, `tpu-migrate explain ${code}`)),
          make("dt", {}, "Switch off"), make("dd", {}, make("code", {}, `# tpu-migrate: ignore[${code}]`))),
        ...rule.references.map((url) => make("p", { class: "reference" },
          make("a", { href: url, rel: "noreferrer", target: "_blank" }, url))),
      ] : []),
      only);
    byId("rule-help").showModal();
  }

  let waiting = 0;
  function soon(action) {
    clearTimeout(waiting);
    waiting = setTimeout(action, 120);
  }

  const KEYS = {
    j: () => step(1),
    k: () => step(-1),
    n: () => stepFile(1),
    p: () => stepFile(-1),
    e: () => { const here = place(); if (here) { showAll(here.file); go(here.file, here.item); } },
    o: overview,
    u: switchLayout,
    d: switchTheme,
    "/": () => byId("query").select(),
    "?": () => byId("help").showModal(),
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    const field = event.target.closest("input[type=search]");
    if (event.key === "Escape") {
      if (field) field.blur();
      byId("rules-menu").open = false;
      setFiles(false);
    } else if (field && event.key === "Enter") {
      const [first] = listed();
      if (first) go(first, first.shown[0]);
    } else if (!field && KEYS[event.key]) {
      event.preventDefault();
      KEYS[event.key]();
    }
  });

  function setFiles(open) {
    byId("files").classList.toggle("open", open);
    byId("show-files").setAttribute("aria-expanded", String(open));
  }

  document.addEventListener("click", (event) => {
    const at = (selector) => event.target.closest(selector);
    if (!at("#rules-menu")) byId("rules-menu").open = false;
    const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey;
    if (at("[data-rule]")) showRule(at("[data-rule]").dataset.rule);
    else if (at("[data-clear], #clear")) clearFilters();
    else if (at("button[data-facet]")) {
      const button = at("button[data-facet]");
      const set = chosen[button.dataset.facet];
      if (!set.delete(button.value)) set.add(button.value);
      update();
    } else if (at("[data-family]")) {
      const { family } = at("[data-family]").dataset;
      chosen.rule.clear();
      for (const input of document.querySelectorAll("#rule input")) {
        if (input.value.replace(/\d+$/u, "") === family) chosen.rule.add(input.value);
      }
      update();
      const [first] = listed();
      if (first) go(first, first.shown[0]);
    } else if (plain && at('a[href^="#file="]')) { // keeps the filters, if they leave it in
      const { file, item } = placeIn(at("a").hash);
      if (!file?.listed || (item && !file.shown.includes(item))) return;
      event.preventDefault();
      setFiles(false);
      history.pushState(null, "", location.href); // so that "back" leads here again
      go(file, item);
    } else if (plain && at("[data-skip]")) {
      event.preventDefault();
      changes.focus();
      changes.scrollIntoView();
    } else if (event.target.nodeName === "DIALOG") event.target.close(); // beside its box
  });

  byId("rule").addEventListener("change", ({ target }) => {
    chosen.rule[target.checked ? "add" : "delete"](target.value);
    update();
  });
  byId("query").addEventListener("input", () => soon(() => {
    setQuery();
    update();
  }));
  byId("path").addEventListener("input", ({ target }) => soon(() => {
    folder = target.value.trim().toLowerCase();
    update();
  }));
  byId("layout").addEventListener("click", switchLayout);
  byId("theme").addEventListener("click", switchTheme);
  byId("show-help").addEventListener("click", () => byId("help").showModal());
  byId("show-files").addEventListener("click", () => setFiles(!byId("files").classList.contains("open")));
  narrow.addEventListener("change", redrawAll);

  // Copying takes one side of a table, that where it began.
  changes.addEventListener("mousedown", ({ target }) => {
    const cell = target.closest("td.text");
    if (cell) cell.closest("table").dataset.side = cell.classList.contains("before") ? "before" : "after";
  });

  let scrolled = 0;
  addEventListener("scroll", () => {
    clearTimeout(scrolled);
    scrolled = setTimeout(() => {
      const here = place();
      if (here?.file === current?.file && (here?.item || null) === (current?.item || null)) return;
      current = here;
      markFile(here?.file);
      remember();
    }, 200);
  }, { passive: true });

  let unfolded = [];
  addEventListener("beforeprint", () => {
    printing = true;
    unfolded = [...document.querySelectorAll("main details:not([open])")];
    for (const details of unfolded) details.open = true;
    for (const file of files) {
      if (!file.section) continue;
      clear(file);
      if (file.listed) render(file);
    }
  });
  addEventListener("afterprint", () => {
    printing = false;
    for (const details of unfolded) details.open = false;
    for (const file of files) {
      if (!file.section) continue;
      clear(file);
      reserve(file);
    }
    look();
  });

  // ---- start ------------------------------------------------------------------------------------

  history.scrollRestoration = "manual";
  setTheme(stored("theme"));
  showLayout();
  const every = files.flatMap((file) => file.notes);
  const labelled = files.flatMap((file) => file.hunks).filter((hunk) => !hunk.by.length).length;
  facet("outcome", KINDS, (kind) =>
    every.filter((note) => note.kind === kind).length + (kind === "added" ? labelled : 0));
  facet("safety", SAFETIES, (safety) => every.filter((note) => note.safety === safety).length);
  facet("status", STATUSES, (status) => files.filter((file) => file.status === status).length);
  ruleList();
  for (const file of files) {
    if (!file.items.length) continue;
    changes.append(sectionOf(file));
    file.body.dataset.number = file.number;
  }
  addEventListener("hashchange", recall);
  recall();
})();
