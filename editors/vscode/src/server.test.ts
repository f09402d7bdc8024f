/** The command that the extension starts is a server, which takes what it is told. */

import assert from "node:assert";
import { spawn } from "node:child_process";
import { after, test } from "node:test";
import { createMessageConnection, StreamMessageReader, StreamMessageWriter } from "vscode-jsonrpc/node";
import { command, options } from "./server";

const settings = {
  path: process.env.TPU_MIGRATE ?? "tpu-migrate",
  target: "torchax",
  severity: { rewrite: "information" },
};
const started = command(settings);
const server = spawn(started.command, started.args, { stdio: ["pipe", "pipe", "inherit"] });
const connection = createMessageConnection(
  new StreamMessageReader(server.stdout), new StreamMessageWriter(server.stdin));
after(() => server.kill());

test("it answers, and finds GPU code in a document", { timeout: 60_000 }, async () => {
  const found = new Promise<{ code: string; severity: number }[]>((resolve) =>
    connection.onNotification("textDocument/publishDiagnostics", (said) => resolve(said.diagnostics)));
  connection.listen();
  const answer: any = await connection.sendRequest("initialize", {
    processId: process.pid, rootUri: null, capabilities: {}, initializationOptions: options(settings),
  });
  assert.equal(answer.serverInfo.name, "tpu-migrate");
  assert.ok(answer.capabilities.codeActionProvider);
  await connection.sendNotification("initialized", {});
  await connection.sendNotification("textDocument/didOpen", {
    textDocument: { uri: "file:///a/b.py", languageId: "python", version: 1,
      text: "import torch\n\n\ndef f(x):\n    return x.cuda()\n" },
  });
  const [first] = await found;
  assert.deepEqual([first.code, first.severity], ["MOV001", 3]); // information
});
