/** The packaged extension in VS Code, as code-server serves it to a browser without a screen. */

import assert from "node:assert";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { type Browser, chromium, type Page } from "playwright-core";

const SERVER = process.env.TPU_MIGRATE ?? "tpu-migrate";
const CODE = process.env.CODE_SERVER ?? "code-server";
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const SCRIPT = `import torch

x = torch.ones(2).cuda()
stream = torch.cuda.Stream()
`;
const CELL = { cell_type: "code", execution_count: null, metadata: {}, outputs: [], source: SCRIPT };
const NOTEBOOK = { cells: [CELL], metadata: { language_info: { name: "python" } }, nbformat: 4, nbformat_minor: 5 };

const root = mkdtempSync(join(tmpdir(), "vscode-"));
const project = join(root, "project");
const extensions = ["--user-data-dir", join(root, "data"), "--extensions-dir", join(root, "extensions")];
let code: ChildProcess;
let browser: Browser;
let page: Page;

/** Save the settings of the machine: those of the user are only read at the start. */
function set(settings: Record<string, unknown>): void {
  const own = Object.entries(settings).map(([name, value]) => [`tpuMigrate.${name}`, value]);
  mkdirSync(join(root, "data/Machine"), { recursive: true });
  writeFileSync(join(root, "data/Machine/settings.json"), JSON.stringify(Object.fromEntries(own)));
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((listening) => server.once("listening", listening));
  const { port } = server.address() as { port: number };
  await new Promise((closed) => server.close(closed));
  return port;
}

async function palette(text: string): Promise<void> {
  await page.keyboard.press("Escape"); // a menu
  await page.keyboard.press("F1");
  await page.locator(".quick-input-widget input:visible").fill(`>${text}`);
  await page.locator(".quick-input-list .monaco-list-row", { hasText: text }).first().click();
}

/** Open a file of the project in its only editor. */
async function open(name: string): Promise<void> {
  await palette("View: Close All Editors");
  await page.locator(".explorer-folders-view").getByText(name, { exact: true }).dblclick();
}

/** The titles of the quick fixes where the first `cuda` is, once the server offers one. */
async function quickFixes(title: string): Promise<string[]> {
  await page.locator(".view-line", { hasText: "cuda()" }).getByText("cuda").first().click();
  const menu = page.locator(".action-widget .action .title");
  for (const end = Date.now() + 20_000; Date.now() < end; await page.keyboard.press("Escape")) {
    await page.keyboard.press("Control+.");
    await menu.first().waitFor({ timeout: 2_000 }).catch(() => {});
    const titles = await menu.allTextContents();
    if (titles.some((one) => one.includes(title))) return titles;
  }
  throw new Error(`no quick fix "${title}"`);
}

const said = () => page.locator(".notification-list-item-message").allTextContents();
const found = (severity: string) => page.locator(`.squiggly-${severity}`).first().waitFor();

before(async () => {
  const vsix = `tpu-migrate-${process.env.npm_package_version}.vsix`;
  execFileSync(CODE, [...extensions, "--config", join(root, "config.yaml"), "--install-extension", vsix]);
  execFileSync("git", ["init", "-q", project]);
  writeFileSync(join(project, "train.py"), SCRIPT);
  writeFileSync(join(project, "book.ipynb"), JSON.stringify(NOTEBOOK));
  execFileSync("git", ["-C", project, "add", "."]);
  set({ path: SERVER, target: "torchax" });
  const address = `127.0.0.1:${await freePort()}`;
  code = spawn(CODE, [...extensions, "--config", join(root, "config.yaml"), "--auth", "none", "--bind-addr", address,
    "--disable-update-check", "--disable-telemetry", "--disable-workspace-trust", project], { detached: true, stdio: ["ignore", "pipe", "inherit"] });
  await new Promise<void>((listening) =>
    code.stdout!.on("data", (text) => `${text}`.includes("HTTP server listening") && listening()));
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
  page = await browser.newPage({ viewport: { width: 1300, height: 800 } });
  page.setDefaultTimeout(20_000);
  await page.goto(`http://${address}/?folder=${project}`);
  await page.locator(".explorer-folders-view").getByText("train.py").waitFor();
}, { timeout: 120_000 });

afterEach((context) => page.screenshot({ path: `out/${context.name}.png` }));

after(async () => {
  await browser?.close();
  if (code?.pid) process.kill(-code.pid); // with its children
  rmSync(root, { recursive: true, force: true, maxRetries: 10 });
});

test("findings are shown, and nothing is complained of", async () => {
  await open("train.py");
  await found("warning");
  await found("hint");
  assert.deepEqual(await said(), []);
});

test("a quick fix rewrites a line, and writes the runtime", async () => {
  await quickFixes("Rewrite for torchax");
  await page.keyboard.press("Enter");
  await page.locator(".view-line", { hasText: "tpu_runtime.setup()" }).waitFor();
  await page.locator(".notification-list-item-message", { hasText: "tpu_runtime" }).waitFor();
  assert.ok(readdirSync(join(project, "vendor")).some((name) => /^tpu_runtime-.*\.whl$/.test(name)));
  await page.locator(".view-line", { hasText: 'torch.ones(2).to("jax")' }).waitFor();
});

test("notebooks are analysed", async () => {
  await open("book.ipynb");
  await found("warning");
});

test("a changed setting counts at once", async () => {
  await palette("Notifications: Clear All Notifications");
  writeFileSync(join(project, "train.py"), SCRIPT);
  await open("train.py");
  for (const target of ["torch_xla", "torchax", "torch_xla"]) set({ path: SERVER, target });
  const titles = await quickFixes("Rewrite for torch_xla");
  assert.ok(titles.some((title) => title.startsWith("Ignore")));
  assert.deepEqual(await said(), []);
});

test("a wrong path is reported, and a corrected one starts the server", async () => {
  set({ path: "nowhere/tpu-migrate", target: "torchax" });
  await page.locator(".notification-list-item-message", { hasText: "set tpuMigrate.path" }).waitFor();
  await page.locator(".squiggly-warning").first().waitFor({ state: "detached" });
  set({ path: SERVER, target: "torchax" });
  await found("warning");
});

test("the server restarts on command", async () => {
  await palette("Notifications: Clear All Notifications");
  await palette("tpu-migrate: Restart the Server");
  await page.locator(".squiggly-warning").first().waitFor({ state: "detached" });
  await found("warning");
  assert.deepEqual(await said(), []);
});
