// An AG-UI server in another language, traced by the proxy before it; nothing is installed for it but Node.
//
//     node examples/node_agent.mjs 8000
//     OTEL_TRACES_EXPORTER=none OTEL_METRICS_EXPORTER=none \
//         agui-otel proxy --upstream http://127.0.0.1:8000 --agent-name planner --live
//     curl -N http://127.0.0.1:8080/agent -H 'content-type: application/json' \
//         -d '{"threadId": "thread-1", "runId": "run-1", "messages": []}'
//
// The proxy shows the trace in the terminal and, because of `none`, sends it nowhere: with
// PHOENIX_COLLECTOR_ENDPOINT=http://localhost:6006 instead it is in a Phoenix too.
//
// The planner asks a researcher by a tool call. The trace that the server's own spans would join is in the
// `traceparent` of the request: it prints that.

import { createServer } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";

function* events({ threadId, runId }) {
  yield { type: "RUN_STARTED", threadId, runId };
  yield { type: "TOOL_CALL_START", toolCallId: "call-1", toolCallName: "task" };
  yield { type: "TOOL_CALL_ARGS", toolCallId: "call-1", delta: '{"about": "offsites"}' };
  yield { type: "TOOL_CALL_END", toolCallId: "call-1" };
  const subagentRunId = "sub-1";
  yield { type: "SUBAGENT_STARTED", subagentRunId, name: "researcher", parentToolCallId: "call-1" };
  yield { type: "TEXT_MESSAGE_START", messageId: "message-1", role: "assistant", subagentRunId };
  for (const delta of ["By ", "the ", "lake."]) {
    yield { type: "TEXT_MESSAGE_CONTENT", messageId: "message-1", delta, subagentRunId };
  }
  yield { type: "TEXT_MESSAGE_END", messageId: "message-1", subagentRunId };
  yield { type: "SUBAGENT_FINISHED", subagentRunId };
  yield { type: "TOOL_CALL_RESULT", messageId: "message-2", toolCallId: "call-1", content: "By the lake." };
  yield { type: "RUN_FINISHED", threadId, runId };
}

function parsed(body) {
  try {
    return JSON.parse(body);
  } catch {
    return null;
  }
}

const server = createServer(async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  const input = parsed(body);
  if (request.method !== "POST" || typeof input?.threadId !== "string") {
    response.writeHead(400, { "content-type": "text/plain" }).end("POST a RunAgentInput\n");
    return;
  }
  console.log(`traceparent: ${request.headers.traceparent}`);
  response.writeHead(200, { "content-type": "text/event-stream" });
  for (const event of events(input)) {
    response.write(`data: ${JSON.stringify(event)}\n\n`);
    await sleep(20);
  }
  response.end();
});
server.listen(Number(process.argv[2] ?? 8000), "127.0.0.1");
