// The reference client's pipeline over a recording: JSON.parse, enforceEvents, transformChunks, verifyEvents.
// Usage: node reference.mjs RECORDING ROUNDS; prints the best round, in microseconds an event.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const require = createRequire(new URL("../tests/oracle/package.json", import.meta.url));
const { enforceEvents, transformChunks, verifyEvents } = require("@ag-ui/client");
const { from } = require("rxjs");

const [, , recording, rounds] = process.argv;
const lines = readFileSync(recording, "utf8").trim().split("\n");

function once() {
  let seen = 0;
  from(lines.map((line) => JSON.parse(line)))
    .pipe(enforceEvents(), transformChunks(), verifyEvents())
    .subscribe({ next: () => seen++, error: (error) => { throw error; } });
  return seen;
}

for (let i = 0; i < 400; i++) once();
let best = Infinity;
for (let i = 0; i < Number(rounds); i++) {
  const started = process.hrtime.bigint();
  for (let j = 0; j < 5; j++) once();
  best = Math.min(best, Number(process.hrtime.bigint() - started) / 5000 / lines.length);
}
console.log(best.toFixed(3));
