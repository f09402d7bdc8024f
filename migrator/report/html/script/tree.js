// The tree of files.

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
