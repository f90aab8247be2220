// AG-UI's reference client as an oracle. One stream (a JSON array of events) a line on stdin; for each, one line:
//
//   {"refused": index of the event at which transformChunks -> verifyEvents gives up, or null,
//    "message": what it says, or null,
//    "wellFormed": for each event, whether the event schema accepts it without the nulls in its optional fields}
//
// Events of types that AG-UI 1.0 does not know are left out before judging, as the client does.

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "true";

import { createInterface } from "node:readline";
import { EventType, omitOptionalNulls } from "@ag-ui/core";
import { EventSchema } from "@ag-ui/core/schemas";
import { transformChunks, verifyEvents } from "@ag-ui/client";
import { Subject } from "rxjs";

const known = new Set(Object.values(EventType));

function judge(events) {
  const source = new Subject();
  let message = null;
  source.pipe(transformChunks(), verifyEvents()).subscribe({
    error: (error) => {
      message = String(error.message);
    },
  });
  for (const [index, event] of events.entries()) {
    if (!known.has(event.type)) continue;
    source.next(event);
    if (message !== null) return { refused: index, message };
  }
  return { refused: null, message };
}

function wellFormed(event) {
  if (event === null || typeof event !== "object" || Array.isArray(event)) return false;
  return EventSchema.safeParse(omitOptionalNulls(event, "Event")).success;
}

for await (const line of createInterface({ input: process.stdin })) {
  const events = JSON.parse(line);
  const answer = { ...judge(events), wellFormed: events.map(wellFormed) };
  process.stdout.write(JSON.stringify(answer) + "\n");
}
