// What every Node scenario uses; the same as checks.py. One line of JSON for each check.
import assert from "node:assert/strict";

export const { NEXUS_URL: URL, NEXUS_API_KEY: KEY, NEXUS_MODEL: MODEL, NEXUS_SWITCH: SWITCH } = process.env;
// May have one choice generated at once.
export const { NEXUS_LIMITED_KEY: LIMITED_KEY } = process.env;
export const QUESTION = [{ role: "user", content: "Name three colours of the sea." }];

export class Skipped extends Error {}

const checks = [];

export function check(name, run) {
  checks.push({ name, run });
}

// Spoil the next generations behind the gateway: 503, 500 or cut.
export async function failNext(fail, times = 1) {
  const headers = { "content-type": "application/json" };
  await fetch(SWITCH, { method: "POST", headers, body: JSON.stringify({ fail, times }) });
}

// What the gateway has asked of the verifier so far.
export async function counts() {
  return (await fetch(SWITCH)).json();
}

export async function waitFor(holds, timeoutMs = 30000) {
  const deadline = Date.now() + timeoutMs;
  while (!(await holds())) {
    assert.ok(Date.now() < deadline, "it did not happen in time");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

// Skip the check unless the model's card lists the parameter.
export async function served(parameter) {
  const answer = await fetch(`${URL}/models/${MODEL}`, { headers: { authorization: `Bearer ${KEY}` } });
  const card = await answer.json();
  if (!card.supported_parameters.includes(parameter)) {
    throw new Skipped(`the gateway does not serve \`${parameter}\``);
  }
}

// The error of this class that a promise is rejected with.
export async function rejects(kind, promise) {
  try {
    await promise;
  } catch (error) {
    assert.ok(error instanceof kind, `${error?.constructor?.name} instead of ${kind.name}: ${error}`);
    return error;
  }
  assert.fail(`no ${kind.name}`);
}

export async function main() {
  for (const { name, run } of checks) {
    const began = performance.now();
    const told = { check: name };
    try {
      await run();
      told.result = "passed";
    } catch (error) {
      const skipped = error instanceof Skipped;
      told.result = skipped ? "skipped" : "failed";
      told.why = skipped ? error.message : String(error?.stack ?? error);
      if (!skipped) process.exitCode = 1;
    }
    told.s = Math.round(performance.now() - began) / 1000;
    console.log(JSON.stringify(told));
  }
}
