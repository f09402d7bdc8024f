import { commands, type ExtensionContext, window, workspace } from "vscode";
import { LanguageClient } from "vscode-languageclient/node";
import { command, options, type Settings } from "./server";

const SECTION = "tpuMigrate";
let client: LanguageClient | undefined;

function settings(): Settings {
  const given = workspace.getConfiguration(SECTION);
  return {
    path: given.get("path", "tpu-migrate"),
    target: given.get("target", ""),
    severity: given.get("severity", {}),
  };
}

async function start(): Promise<void> {
  await client?.dispose();
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

export async function activate(context: ExtensionContext): Promise<void> {
  context.subscriptions.push(
    commands.registerCommand("tpu-migrate.restart", start),
    workspace.onDidChangeConfiguration((change) => change.affectsConfiguration(SECTION) && start()),
  );
  await start();
}

export const deactivate = () => client?.dispose();
