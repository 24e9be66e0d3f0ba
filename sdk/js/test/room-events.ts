/** Messages of a gateway to a listener, as it writes them. */

type Json = Record<string, unknown>;

/** Default values are left out, and 64-bit integers are strings. */
function index(name: string, value: number): Json {
  return value === 0 ? {} : { [name]: String(value) };
}

export function room(more: Json = {}): Json {
  return { roomId: "r-1", options: { name: "Lecture", speak: "SPEAK_POLICY_INVITED" }, ...more };
}

export function joined(position = 0, more: Json = {}): Json {
  return {
    joined: {
      memberId: "m-1",
      room: room(),
      ...index("position", position),
      resumeWithinMs: 20_000,
      ...more,
    },
  };
}

/** The index of an utterance, and of the one before it in its language. */
function chained(roomIndex: number, previous: number | null): Json {
  return {
    ...index("roomIndex", roomIndex),
    ...(previous === null ? {} : { previousIndex: String(previous) }),
  };
}

export function said(roomIndex: number, previous: number | null, more: Json = {}): Json {
  return {
    result: {
      ...chained(roomIndex, previous),
      language: "es",
      spokenLanguage: "en",
      sessionId: "s-1",
      speaker: "Ana",
      kind: "KIND_TRANSLATED",
      texts: { source: "hello", translated: "hola" },
      ...more,
    },
  };
}

export function notSaid(roomIndex: number, previous: number | null, more: Json = {}): Json {
  const why = { reason: "ERROR_REASON_JOB_TIMEOUT", message: "too late" };
  return { missing: { ...chained(roomIndex, previous), language: "es", why, ...more } };
}

export function changed(language: string, position: number): Json {
  return { changed: { listening: { language, captions: true }, ...index("position", position) } };
}

export function status(listeners: number): Json {
  const languages = [{ language: "es", listeners, speechListeners: 1 }];
  const speakers = [{ sessionId: "s-1", name: "Ana", language: "en", joinedMs: "1000" }];
  return { status: { listeners, languages, speakers } };
}

export function roomClosed(): Json {
  return { closed: { utterances: "3" } };
}

/** Audio of a result, as a binary frame: 3 is speech, 4 the speaker's own audio. */
export function roomAudioFrame(
  kind: number,
  roomIndex: number,
  data: ArrayLike<number>,
): ArrayBuffer {
  const frame = new Uint8Array(12 + data.length);
  const view = new DataView(frame.buffer);
  view.setUint8(0, kind);
  view.setBigUint64(4, BigInt(roomIndex));
  frame.set(data, 12);
  return frame.buffer;
}
