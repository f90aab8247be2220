// AG-UI's own binary encoder and decoder. A JSON object a line on stdin, an array a line on stdout, item by item:
//
//   {"encode": [event, ...]} -> [{"text": server-sent event, "frame": base64 of the frame behind its length}
//                                or null where the encoder throws, ...]
//   {"decode": [base64 of a frame without its length, ...]}
//                            -> [{"event": ...} or {"later": true} (a type of a later AG-UI) or {"error": ...}, ...]

process.env.SUPPRESS_TRANSFORMATION_WARNINGS = "true";
console.warn = () => {};

import { createInterface } from "node:readline";
import { EventEncoder } from "@ag-ui/encoder";
import { AGUIUnknownEventTypeError, AGUI_MEDIA_TYPE, decode } from "@ag-ui/proto";

const encoder = new EventEncoder({ accept: AGUI_MEDIA_TYPE });

function encoded(event) {
  try {
    const frame = Buffer.from(encoder.encodeBinary(event)).toString("base64");
    return { text: encoder.encodeSSE(event), frame };
  } catch {
    return null;
  }
}

function decoded(frame) {
  try {
    return { event: decode(new Uint8Array(Buffer.from(frame, "base64"))) };
  } catch (error) {
    return error instanceof AGUIUnknownEventTypeError ? { later: true } : { error: String(error.message) };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { encode, decode: frames } = JSON.parse(line);
  process.stdout.write(JSON.stringify(encode ? encode.map(encoded) : frames.map(decoded)) + "\n");
}
