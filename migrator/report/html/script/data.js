// Elements, and the data of the report.

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
  left: ["Reported", "constructs that are left to change by hand"],
  advice: ["Advice", "nothing is wrong, but a TPU expert would mention it"],
  kept: ["Kept", "left as they are on purpose: shown when chosen here, or by their rule"],
  failed: ["Failed", "could not be processed"],
};
const LABELS = {
  imports: "Imports that follow from other changes",
  comments: "Comments for what is reported",
  metadata: "What the notebook asks for",
};

const data = parsed("data");
const change = data.written ? "changed" : "would change";
const STATUSES = {
  failed: ["✕", "Failed", "could not be processed"],
  left: ["!", "Reported", "something is left to change by hand"],
  changed: ["✓", data.written ? "Changed" : "Would change", `${change}, nothing is reported`],
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
