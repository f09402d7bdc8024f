import { commands, type ExtensionContext, window, workspace } from "vscode";
import { LanguageClient } from "vscode-languageclient/node";
import { command, options, type Settings } from "./server";

const SECTION = "tpuMigrate";
let client: LanguageClient | undefined;
let starting = Promise.resolve();

function settings(): Settings {
  const given = workspace.getConfiguration(SECTION);
  return {
    path: given.get("path", "tpu-migrate"),
    target: given.get("target", ""),
    severity: given.get("severity", {}),
  };
}

/** A client can't be stopped before it runs, nor after a failed start. */
async function stop(): Promise<void> {
  if (client?.isRunning()) await client.dispose();
}

async function start(): Promise<void> {
  await stop();
  client = new LanguageClient("tpu-migrate", command(settings()), {
    documentSelector: [{ language: "python" }],
    initializationOptions: options(settings()),
  });
  try {
    await client.start();
  } catch (error) {
    window.showErrorMessage(`${error}. Install tpu-migrate with its extra "editor", or set ${SECTION}.path.`);
  }
}

/** Restarts take turns: settings may change again while a server starts. */
const restart = () => (starting = starting.then(start, start));

export async function activate(context: ExtensionContext): Promise<void> {
  context.subscriptions.push(
    commands.registerCommand("tpu-migrate.restart", restart),
    workspace.onDidChangeConfiguration((change) => change.affectsConfiguration(SECTION) && restart()),
  );
  await restart();
}

export const deactivate = stop;
