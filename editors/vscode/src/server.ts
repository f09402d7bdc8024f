/** How the server is started; apart from VS Code, so that a test can start it the same way. */

export interface Settings {
  path: string;
  target: string;
  severity: Record<string, string>;
}

export const command = (settings: Settings) => ({ command: settings.path, args: ["lsp"] });

/** What the server is told at its start (docs/editors.md). */
export const options = ({ target, severity }: Settings) => ({ ...(target && { target }), severity });
