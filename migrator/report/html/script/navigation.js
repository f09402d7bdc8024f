// Moving about.

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
