// AG-UI's own HTTP client. A JSON object a line on stdin, an object a line on stdout:
//
//   {"url": ..., "accept": media type, "input": RunAgentInput} -> {"events": [event, ...], "error": message or null}
//
// The events are what HttpAgent hands to an application, after its checks.

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "true";
console.warn = console.error = () => {};

import { createInterface } from "node:readline";
import { HttpAgent } from "@ag-ui/client";

class Asking extends HttpAgent {
  constructor(accept, config) {
    super(config);
    this.accept = accept;
  }
  requestInit(input) {
    const init = super.requestInit(input);
    return { ...init, headers: { ...init.headers, Accept: this.accept } };
  }
}

async function run({ url, accept, input }) {
  const { threadId, runId, messages, state, ...parameters } = input;
  const agent = new Asking(accept, { url, threadId, initialMessages: messages, initialState: state });
  const events = [];
  let failure = null;
  const subscriber = {
    onEvent: ({ event }) => void events.push(structuredClone(event)),
    onRunFailed: ({ error }) => void (failure = String(error.message)),
  };
  await agent.runAgent({ runId, ...parameters }, subscriber).catch((error) => (failure ??= String(error.message)));
  return { events, error: failure };
}

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(JSON.stringify(await run(JSON.parse(line))) + "\n");
}
