// The same as proofs.py, for clients in JavaScript: the target of a script and its list of checks.
export const target = JSON.parse(process.argv[2]);
target.url = `${target.origin}/v1`;

const found = [];

// Adds a check; `servers` are those it is meant for, `small` when none is named.
export function check(sentence, run, ...servers) {
  found.push({ sentence, run, servers: servers.length ? servers : ["small"] });
}

// Runs what is meant for the target's server, one line of JSON each; 1 if one fails.
export async function main() {
  let failed = 0;
  for (const { sentence, run, servers } of found) {
    if (!servers.includes(target.server)) continue;
    const started = performance.now();
    const line = { check: sentence };
    try {
      await run();
    } catch (error) {
      failed += 1;
      console.error(error);
      line.error = `${error.name}: ${error.message}`;
    }
    line.seconds = Math.round((performance.now() - started) / 10) / 100;
    // the runner knows a check by these first characters
    console.log(JSON.stringify(line));
  }
  process.exit(failed ? 1 : 0);
}

// Value of a metric, summed over its samples.
async function metric(name) {
  const text = await (await fetch(`${target.origin}/metrics`)).text();
  const samples = text.split("\n").filter((line) => line.split("{")[0] === name);
  if (!samples.length) throw new Error(`/metrics has no ${name}`);
  return samples.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}

// Waits until no request runs, as it must soon after a client has left.
export async function waitIdle(limitMs = 10_000) {
  const deadline = performance.now() + limitMs;
  while (await metric("vllm:num_requests_running")) {
    if (performance.now() > deadline) throw new Error("a request still runs after its client left");
  }
}
