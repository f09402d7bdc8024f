// Text: colours, differences of words, marks.

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
