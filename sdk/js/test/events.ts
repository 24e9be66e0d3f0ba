/** Messages of a gateway, as it writes them. */

type Json = Record<string, unknown>;

export function opened(nextSeq = 0, limits: Record<string, number> = {}): Json {
  return {
    opened: {
      sessionId: "s-1",
      resumeToken: "secret",
      // Default values are left out, and 64-bit integers are strings.
      ...(nextSeq === 0 ? {} : { nextSeq: String(nextSeq) }),
      limits: { maxChunkBytes: 65_536, resumeWithinMs: 20_000, ...limits },
    },
  };
}

export function ack(nextSeq: number, keepSeq?: number): Json {
  const keep = keepSeq === undefined ? {} : { keepSeq: String(keepSeq) };
  return { audioAck: { nextSeq: String(nextSeq), ...keep } };
}

export function result(index: number, text = "hola", more: Json = {}): Json {
  return {
    result: {
      ...(index === 0 ? {} : { utteranceIndex: index }),
      direction: { src: "en", tgt: "es" },
      kind: "KIND_TRANSLATED",
      texts: { translated: text },
      ...more,
    },
  };
}

export function missing(index: number): Json {
  const why = { reason: "ERROR_REASON_JOB_TIMEOUT", message: "too late" };
  return { missing: { ...(index === 0 ? {} : { utteranceIndex: index }), why } };
}

export function finalized(index: number): Json {
  const reason = "FINALIZE_REASON_IS_FINAL";
  return { utterance: { utteranceIndex: index, finalized: { reason, audioMs: 900 } } };
}

export function partial(index: number, text: string): Json {
  return { partial: { utteranceIndex: index, texts: { source: text } } };
}

export function goAway(afterMs = 0): Json {
  return { goAway: { ...(afterMs === 0 ? {} : { afterMs }), why: "draining" } };
}

export function closed(results = 0, missingOnes = 0): Json {
  return { closed: { results, missing: missingOnes } };
}

export function failed(
  reason: string,
  metadata: Record<string, string> = {},
  retryAfterMs = 0,
): Json {
  return { error: { reason: `ERROR_REASON_${reason}`, message: "no", metadata, retryAfterMs } };
}

/** The speech of a result, as a binary frame. */
export function speechFrame(index: number, data: ArrayLike<number>): ArrayBuffer {
  const frame = new Uint8Array(8 + data.length);
  new DataView(frame.buffer).setUint32(0, 0x02000000);
  new DataView(frame.buffer).setUint32(4, index);
  frame.set(data, 8);
  return frame.buffer;
}
