/** Converts messages of the gateway, in protobuf's JSON form, to events. No I/O, no clock. */

import type { AudioFormat } from "../audio-format.js";
import type {
  Accepted,
  Direction,
  Finalized,
  Limits,
  Missing,
  Outcome,
  PartialText,
  Problem,
  Result,
  ResultKind,
  ResultTimings,
  Retrying,
  Texts,
} from "../events.js";
import type { ServerError } from "./endings.js";
import {
  enumOf,
  type Fields,
  fieldsOf,
  integerOf,
  integersOf,
  isFields,
  messagesOf,
  optionalInteger,
  textOf,
  textsByName,
  WireError,
} from "./json.js";

/** The limit of a server that does not announce one. */
const CHUNK_BYTES = 64 * 1024;
const NO_SPEECH = new Uint8Array();

export interface Opened {
  readonly kind: "opened";
  readonly sessionId: string;
  readonly resumeToken: string;
  readonly limits: Limits;
  readonly silenceMs: number;
  readonly nextSeq: number;
  readonly traceparent: string;
}

/** Progress of an utterance, for display only. */
export type Progress = PartialText | Finalized | Accepted | Retrying;

/** One event of a ServerMessage. */
export type WireEvent =
  | Opened
  | { readonly kind: "audioAck"; readonly nextSeq: number; readonly keepSeq: number | null }
  /** `event` is null if this version does not know it. */
  | { readonly kind: "progress"; readonly index: number; readonly event: Progress | null }
  | { readonly kind: "outcome"; readonly event: Outcome }
  | { readonly kind: "goAway"; readonly afterMs: number; readonly why: string }
  | { readonly kind: "error"; readonly error: ServerError }
  | { readonly kind: "closed"; readonly results: number; readonly missing: number }
  | { readonly kind: "unknown" };

/** Returns the events of a text frame. Throws WireError if it is not a ServerMessage. */
export function eventsOf(frame: string): readonly WireEvent[] {
  let message: unknown;
  try {
    message = JSON.parse(frame);
  } catch {
    throw new WireError("a text frame is not JSON");
  }
  if (!isFields(message)) {
    throw new WireError("a text frame is not an object");
  }
  return messagesOf(message, "events").map(eventOf);
}

function eventOf(event: Fields): WireEvent {
  const kind = KINDS.find((each) => event[each] !== undefined);
  return kind === undefined ? { kind: "unknown" } : READERS[kind](fieldsOf(event, kind));
}

const READERS = {
  opened: openedFrom,
  audioAck: (ack): WireEvent => ({
    kind: "audioAck",
    nextSeq: integerOf(ack, "nextSeq"),
    keepSeq: optionalInteger(ack, "keepSeq"),
  }),
  utterance: (event): WireEvent => ({
    kind: "progress",
    index: integerOf(event, "utteranceIndex"),
    event: progressFrom(event),
  }),
  partial: (event): WireEvent => {
    const partial = partialFrom(event);
    return { kind: "progress", index: partial.index, event: partial };
  },
  result: (event): WireEvent => ({ kind: "outcome", event: resultFrom(event) }),
  missing: (event): WireEvent => ({ kind: "outcome", event: missingFrom(event) }),
  goAway: (event): WireEvent => ({
    kind: "goAway",
    afterMs: integerOf(event, "afterMs"),
    why: textOf(event, "why"),
  }),
  error: (event): WireEvent => ({ kind: "error", error: errorFrom(event) }),
  closed: (event): WireEvent => ({
    kind: "closed",
    results: integerOf(event, "results"),
    missing: integerOf(event, "missing"),
  }),
} satisfies Record<string, (fields: Fields) => WireEvent>;

const KINDS = Object.keys(READERS) as (keyof typeof READERS)[];

function openedFrom(opened: Fields): WireEvent {
  const limits = fieldsOf(opened, "limits");
  return {
    kind: "opened",
    sessionId: textOf(opened, "sessionId"),
    resumeToken: textOf(opened, "resumeToken"),
    limits: {
      maxChunkBytes: integerOf(limits, "maxChunkBytes") || CHUNK_BYTES,
      pauseMs: integerOf(limits, "pauseMs"),
      maxDurationMs: integerOf(limits, "maxDurationMs"),
      maxLengthBytes: integerOf(limits, "maxLengthBytes"),
      resultDeadlineMs: integerOf(limits, "resultDeadlineMs"),
      resumeWithinMs: integerOf(limits, "resumeWithinMs"),
    },
    silenceMs: integerOf(limits, "silenceMs"),
    nextSeq: integerOf(opened, "nextSeq"),
    traceparent: textOf(opened, "traceparent"),
  };
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

function resultFrom(result: Fields): Result {
  return {
    type: "result",
    index: integerOf(result, "utteranceIndex"),
    direction: directionOf(result),
    kind: kindOf(result),
    texts: textsOf(result),
    speech: NO_SPEECH,
    speechFormat: formatOf(result),
    joined: integersOf(result, "joinedUtterances"),
    lost: integersOf(result, "lostUtterances"),
    jobId: textOf(result, "jobId"),
    nodeId: textOf(result, "nodeId"),
    attempts: integerOf(result, "attempts"),
    timings: timingsOf(result),
    turnBroken: result.turnBroken === true,
  };
}

function missingFrom(missing: Fields): Missing {
  const why = errorFrom(fieldsOf(missing, "why"));
  return {
    type: "missing",
    index: integerOf(missing, "utteranceIndex"),
    direction: directionOf(missing),
    reason: why.reason,
    message: why.message,
    lost: integersOf(missing, "lostUtterances"),
  };
}

function partialFrom(partial: Fields): PartialText {
  return {
    type: "partial",
    index: integerOf(partial, "utteranceIndex"),
    direction: directionOf(partial),
    texts: textsOf(partial),
  };
}

function progressFrom(event: Fields): Finalized | Accepted | Retrying | null {
  const common = { index: integerOf(event, "utteranceIndex"), direction: directionOf(event) };
  if (event.finalized !== undefined) {
    const finalized = fieldsOf(event, "finalized");
    const reason = enumOf(finalized, "reason", "FINALIZE_REASON_");
    return { type: "finalized", ...common, reason, audioMs: integerOf(finalized, "audioMs") };
  }
  if (event.accepted !== undefined) {
    const accepted = fieldsOf(event, "accepted");
    return {
      type: "accepted",
      ...common,
      jobId: textOf(accepted, "jobId"),
      nodeId: textOf(accepted, "nodeId"),
      attempt: integerOf(accepted, "attempt"),
    };
  }
  if (event.retrying !== undefined) {
    const retrying = fieldsOf(event, "retrying");
    const { reason, message } = errorFrom(fieldsOf(retrying, "why"));
    const attempt = integerOf(retrying, "attempt");
    return { type: "retrying", ...common, attempt, reason, message };
  }
  return null;
}

function directionOf(event: Fields): Direction {
  const direction = fieldsOf(event, "direction");
  return { src: textOf(direction, "src"), tgt: textOf(direction, "tgt") };
}

function textsOf(event: Fields): Texts {
  const texts = fieldsOf(event, "texts");
  return {
    source: textOf(texts, "source"),
    repaired: textOf(texts, "repaired"),
    translated: textOf(texts, "translated"),
  };
}

function kindOf(result: Fields): ResultKind {
  const kind = enumOf(result, "kind", "KIND_");
  return kind === "TRANSLATED" || kind === "HELD" || kind === "NO_SPEECH" ? kind : "UNSPECIFIED";
}

function formatOf(result: Fields): AudioFormat | null {
  const format = fieldsOf(result, "speechFormat");
  const encoding = enumOf(format, "encoding", "AUDIO_ENCODING_");
  const sampleRateHz = integerOf(format, "sampleRateHz");
  const channels = integerOf(format, "channels");
  const isKnown = encoding === "PCM_S16LE" || encoding === "OPUS";
  return isKnown && sampleRateHz > 0 && channels > 0 ? { encoding, sampleRateHz, channels } : null;
}

function timingsOf(result: Fields): ResultTimings {
  const timings = fieldsOf(result, "timings");
  return {
    audioMs: integerOf(timings, "audioMs"),
    hangoverMs: integerOf(timings, "hangoverMs"),
    dispatchMs: integerOf(timings, "dispatchMs"),
    nodeMs: integerOf(timings, "nodeMs"),
    deliverMs: integerOf(timings, "deliverMs"),
    stages: messagesOf(timings, "stages").map((each) => ({
      stage: enumOf(each, "stage", "STAGE_KIND_"),
      startedMs: integerOf(each, "startedMs"),
      tookMs: integerOf(each, "tookMs"),
    })),
  };
}
