/** Reads what messages of sessions and of rooms have in common. No I/O, no clock. */

import type { AudioFormat } from "../audio-format.js";
import type { Problem, ResultKind, Texts } from "../events.js";
import type { ServerError } from "./endings.js";
import {
  enumOf,
  type Fields,
  fieldsOf,
  integerOf,
  isFields,
  messagesOf,
  textOf,
  textsByName,
  WireError,
} from "./json.js";

/** Returns the events of a text frame, unread. Throws WireError if it is not a message. */
export function messageEvents(frame: string): readonly Fields[] {
  let message: unknown;
  try {
    message = JSON.parse(frame);
  } catch {
    throw new WireError("a text frame is not JSON");
  }
  if (!isFields(message)) {
    throw new WireError("a text frame is not an object");
  }
  return messagesOf(message, "events");
}

/** Reads the member of a oneof that is set; null if this version does not know it. */
export function readFirst<W>(
  event: Fields,
  readers: Readonly<Record<string, (fields: Fields) => W>>,
): W | null {
  const found = Object.entries(readers).find(([name]) => event[name] !== undefined);
  return found === undefined ? null : found[1](fieldsOf(event, found[0]));
}

/** Reads GoAway and RoomGoAway. */
export function goAwayFrom(event: Fields): GoAway {
  return { kind: "goAway", afterMs: integerOf(event, "afterMs"), why: textOf(event, "why") };
}

export interface GoAway {
  readonly kind: "goAway";
  readonly afterMs: number;
  readonly why: string;
}

/** Reads an Error, of an event or of the body of an HTTP refusal. */
export function errorFrom(error: Fields): ServerError {
  return {
    reason: enumOf(error, "reason", "ERROR_REASON_"),
    message: textOf(error, "message"),
    retryAfterMs: integerOf(error, "retryAfterMs"),
    fieldViolations: messagesOf(error, "fieldViolations").map((each) => ({
      field: textOf(each, "field"),
      description: textOf(each, "description"),
    })),
    metadata: textsByName(error, "metadata"),
  };
}

/** An error after which the session continues, as an event. */
export function problemFrom(error: ServerError): Problem {
  return { type: "problem", ...error };
}

export function textsOf(event: Fields): Texts {
  const texts = fieldsOf(event, "texts");
  return {
    source: textOf(texts, "source"),
    repaired: textOf(texts, "repaired"),
    translated: textOf(texts, "translated"),
  };
}

export function kindOf(result: Fields): ResultKind {
  const kind = enumOf(result, "kind", "KIND_");
  return kind === "TRANSLATED" || kind === "HELD" || kind === "NO_SPEECH" ? kind : "UNSPECIFIED";
}

/** Returns a format; null if it is not set, or this version does not know it. */
export function formatOf(result: Fields, name: string): AudioFormat | null {
  const format = fieldsOf(result, name);
  const encoding = enumOf(format, "encoding", "AUDIO_ENCODING_");
  const sampleRateHz = integerOf(format, "sampleRateHz");
  const channels = integerOf(format, "channels");
  const isKnown = encoding === "PCM_S16LE" || encoding === "OPUS";
  return isKnown && sampleRateHz > 0 && channels > 0 ? { encoding, sampleRateHz, channels } : null;
}
