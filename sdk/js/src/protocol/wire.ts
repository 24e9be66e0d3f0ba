/** Converts messages of the gateway, in protobuf's JSON form, to events. No I/O, no clock. */

import type {
  Accepted,
  Direction,
  Finalized,
  Limits,
  Missing,
  Outcome,
  PartialText,
  Result,
  ResultTimings,
  Retrying,
  RoomReceipt,
} from "../events.js";
import type { ServerError } from "./endings.js";
import {
  enumOf,
  type Fields,
  fieldsOf,
  integerOf,
  integersOf,
  messagesOf,
  optionalInteger,
  textListOf,
  textOf,
} from "./json.js";
import {
  errorFrom,
  formatOf,
  type GoAway,
  goAwayFrom,
  kindOf,
  messageEvents,
  readFirst,
  textsOf,
} from "./wire-parts.js";

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
  | GoAway
  | { readonly kind: "error"; readonly error: ServerError }
  | { readonly kind: "closed"; readonly results: number; readonly missing: number }
  | { readonly kind: "unknown" };

/** Returns the events of a text frame. Throws WireError if it is not a ServerMessage. */
export function eventsOf(frame: string): readonly WireEvent[] {
  return messageEvents(frame).map(eventOf);
}

function eventOf(event: Fields): WireEvent {
  return readFirst(event, READERS) ?? { kind: "unknown" };
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
  goAway: goAwayFrom,
  error: (event): WireEvent => ({ kind: "error", error: errorFrom(event) }),
  closed: (event): WireEvent => ({
    kind: "closed",
    results: integerOf(event, "results"),
    missing: integerOf(event, "missing"),
  }),
} satisfies Record<string, (fields: Fields) => WireEvent>;

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

function resultFrom(result: Fields): Result {
  return {
    type: "result",
    index: integerOf(result, "utteranceIndex"),
    direction: directionOf(result),
    kind: kindOf(result),
    texts: textsOf(result),
    speech: NO_SPEECH,
    speechFormat: formatOf(result, "speechFormat"),
    joined: integersOf(result, "joinedUtterances"),
    lost: integersOf(result, "lostUtterances"),
    jobId: textOf(result, "jobId"),
    nodeId: textOf(result, "nodeId"),
    attempts: integerOf(result, "attempts"),
    timings: timingsOf(result),
    turnBroken: result.turnBroken === true,
    room: result.room === undefined ? null : receiptFrom(fieldsOf(result, "room")),
  };
}

function receiptFrom(receipt: Fields): RoomReceipt {
  return {
    roomIndex: integerOf(receipt, "roomIndex"),
    delivered: textListOf(receipt, "delivered"),
    missing: messagesOf(receipt, "missing").map((each) => {
      const { reason, message } = errorFrom(fieldsOf(each, "why"));
      return { language: textOf(each, "language"), reason, message };
    }),
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
