// The controls of the page, and how it starts.

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
