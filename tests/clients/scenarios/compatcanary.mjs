// compatcanary probes a server as its clients would; its profile "chat" is what Nexus offers.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { KEY, MODEL, URL, check, main, served } from "./checks.mjs";

const here = fileURLToPath(new globalThis.URL(".", import.meta.url));
const cli = join(here, "node_modules", "compatcanary", "src", "cli.js");
const argv = [cli, "scan", "--base-url", URL, "--model", MODEL, "--profile", "chat", "--format", "json"];
const rest = ["--timeout", "240", "--fail-on", "never"];
let report;

// What it says of each probe, by id.
function results() {
  if (report === undefined) {
    const env = { ...process.env, OPENAI_API_KEY: KEY };
    const told = JSON.parse(execFileSync(process.execPath, [...argv, ...rest], { env, encoding: "utf8" }));
    report = new Map(told.results.map((each) => [each.id, each]));
  }
  return report;
}

const PROBES = {
  "models.list": "The models list",
  "chat.basic": "A whole answer",
  "chat.streaming": "A stream",
  "chat.tool_call": "A forced tool call",
  "chat.structured_output": "An answer by a schema",
};

check("Every probe is known here", () => assert.deepEqual([...results().keys()].sort(), Object.keys(PROBES).sort()));
for (const [id, name] of Object.entries(PROBES)) {
  check(name, async () => {
    const result = results().get(id);
    if (id === "chat.tool_call" && result.status !== "pass") await served("tools");
    assert.equal(result.status, "pass", JSON.stringify(result));
  });
}

await main();
