/** Checks a session's options by the rules of the contract. Throws RangeError, which names them. */

import { type AudioFormat, SPEECH_FORMAT } from "../audio-format.js";
import type { Direction } from "../events.js";
import type { NewSession } from "../protocol/stream.js";
import { checkId, checkLanguage, checkNumber, checkText, checkWebSocket } from "./checks.js";
import type { WebSocketConstructor } from "./socket.js";
import type { Token } from "./tokens.js";

/** How the gateway detects the pauses that end utterances. */
export type PauseDetection =
  /** No audio arrives for `limits.pauseMs`. */
  | "gaps"
  /** Nobody speaks for `limits.pauseMs` of audio; for microphones that never stop sending. */
  | "voice-activity";

/** Speaks to a room, in one language. */
export interface RoomSpeaker {
  readonly roomId: string;
  /** A speaker's token or the host's, or any token of the room if its policy says so. */
  readonly joinToken: string;
  readonly language: string;
  /** Shown to listeners; may be empty. */
  readonly name?: string;
}

export interface SessionOptions {
  /**
   * Equivalent gateways, such as "wss://example.org" or a list of these. The session starts at a
   * random one, and goes on to the next if a connection fails.
   */
  readonly addresses: string | readonly string[];
  /**
   * A fixed direction; or the two languages of a conversation, in which `send` says who speaks; or a
   * room that is spoken to (see `Room.speak`).
   */
  readonly languages: Direction | { readonly a: string; readonly b: string } | RoomSpeaker;
  /** Of all audio that is sent; 16-bit PCM at 16 kHz by default. */
  readonly audioFormat?: AudioFormat;
  /** Whether speech is needed; otherwise text is enough. */
  readonly requireTts?: boolean;
  /** The node to try first. */
  readonly preferredNodeId?: string;
  /** Use that node or none. */
  readonly strict?: boolean;
  /** The least time between partial texts; 0: none are sent. */
  readonly partialIntervalMs?: number;
  /** Options for nodes, such as a dialect or a voice. */
  readonly features?: Readonly<Record<string, string>>;
  readonly pauseDetection?: PauseDetection;
  /** The tenant of the session, if the deployment has tenants. */
  readonly tenant?: string;
  /** Authenticates this app. A function is asked at every connection, so it can renew the token. */
  readonly token?: Token;
  /**
   * How long to look for a gateway before giving up. By default 10 s for the first connection, and
   * later as long as the server allows (`limits.resumeWithinMs`).
   */
  readonly reconnectMs?: number;
  /** `send` waits while more than this is unacknowledged; at least 1 MiB, 8 MiB by default. */
  readonly maxUnacknowledgedBytes?: number;
  /** The longest chunk of PCM, 100 ms by default. */
  readonly chunkMs?: number;
  /** Node.js 20 has no WebSocket: pass that of the package ws. */
  readonly WebSocket?: WebSocketConstructor;
}

/** About four minutes of speech at 16 kHz. */
const MAX_UNACKNOWLEDGED_BYTES = 8 * 1024 * 1024;
/** Less might not hold one utterance, and then nothing would ever be acknowledged. */
const LEAST_UNACKNOWLEDGED_BYTES = 1024 * 1024;
/** Short enough for live speech, long enough to keep the number of messages low. */
const CHUNK_MS = 100;
const MAX_FEATURES = 32;
const MAX_FEATURE_CHARACTERS = 256;
const MAX_PARTIAL_INTERVAL_MS = 60_000;
export const MAX_ROOM_TOKEN_CHARACTERS = 512;
export const MAX_NAME_CHARACTERS = 64;
/** The sample rates in which the gateway can detect voice. */
const VOICE_RATES = [8000, 16_000, 32_000, 48_000];

/** Options with their defaults. */
export interface CheckedOptions {
  readonly newSession: NewSession;
  readonly audioFormat: AudioFormat;
  /** The fixed direction, or both directions of a conversation. A room's has no target. */
  readonly directions: readonly Direction[];
  readonly reconnectMs: number | null;
  readonly maxUnacknowledgedBytes: number;
  readonly chunkMs: number;
  readonly webSocket: WebSocketConstructor;
}

export function checkOptions(options: SessionOptions): CheckedOptions {
  const directions = directionsOf(options.languages);
  const audioFormat = checkFormat(options.audioFormat ?? SPEECH_FORMAT);
  const bytes = options.maxUnacknowledgedBytes ?? MAX_UNACKNOWLEDGED_BYTES;
  const chunkMs = options.chunkMs ?? CHUNK_MS;
  checkNumber("maxUnacknowledgedBytes", bytes, LEAST_UNACKNOWLEDGED_BYTES, 2 ** 40);
  checkNumber("chunkMs", chunkMs, 1, 10_000);
  if (options.reconnectMs !== undefined) {
    checkNumber("reconnectMs", options.reconnectMs, 0, 86_400_000);
  }
  return {
    newSession: newSessionOf(options, directions, audioFormat),
    audioFormat,
    directions,
    reconnectMs: options.reconnectMs ?? null,
    maxUnacknowledgedBytes: bytes,
    chunkMs,
    webSocket: checkWebSocket(options.WebSocket),
  };
}

function directionsOf(languages: SessionOptions["languages"]): readonly Direction[] {
  if ("roomId" in languages) {
    return [{ src: checkLanguage("languages.language", languages.language), tgt: "" }];
  }
  if ("src" in languages) {
    const src = checkLanguage("languages.src", languages.src);
    return [{ src, tgt: checkLanguage("languages.tgt", languages.tgt) }];
  }
  const a = checkLanguage("languages.a", languages.a);
  const b = checkLanguage("languages.b", languages.b);
  if (a.toLowerCase() === b.toLowerCase()) {
    throw new RangeError(`languages.b: ${b} must differ from a`);
  }
  return [
    { src: a, tgt: b },
    { src: b, tgt: a },
  ];
}

function newSessionOf(
  options: SessionOptions,
  directions: readonly Direction[],
  format: AudioFormat,
): NewSession {
  const byVoice = options.pauseDetection === "voice-activity";
  if (byVoice) {
    checkAudible(format);
  }
  checkNames(options);
  const { partialIntervalMs = 0 } = options;
  checkNumber("partialIntervalMs", partialIntervalMs, 0, MAX_PARTIAL_INTERVAL_MS);
  return {
    ...languagesOf(options.languages, directions),
    audioFormat: { ...format, encoding: `AUDIO_ENCODING_${format.encoding}` },
    options: {
      requireTts: options.requireTts ?? false,
      preferredNodeId: options.preferredNodeId ?? "",
      strict: options.strict ?? false,
      partialIntervalMs: Math.floor(partialIntervalMs),
      features: checkFeatures(options.features ?? {}),
      pauseDetection: byVoice ? "PAUSE_DETECTION_VOICE_ACTIVITY" : "PAUSE_DETECTION_GAPS",
    },
    tenant: options.tenant ?? "",
  };
}

/** Returns the languages as a field of NewSession. */
function languagesOf(
  languages: SessionOptions["languages"],
  directions: readonly Direction[],
): NewSession {
  const [first, second] = directions;
  if ("roomId" in languages) {
    const { roomId, joinToken, name = "" } = languages;
    checkId("languages.roomId", roomId);
    checkText("languages.joinToken", joinToken, MAX_ROOM_TOKEN_CHARACTERS);
    checkText("languages.name", name, MAX_NAME_CHARACTERS);
    return { room: { roomId, joinToken, language: first?.src, name } };
  }
  return second === undefined
    ? { direction: first }
    : { conversation: { a: first?.src, b: first?.tgt } };
}

function checkNames({ preferredNodeId = "", strict = false, tenant = "" }: SessionOptions): void {
  if (preferredNodeId !== "") {
    checkId("preferredNodeId", preferredNodeId);
  } else if (strict) {
    throw new RangeError("strict: requires a preferredNodeId");
  }
  if (tenant !== "") {
    checkId("tenant", tenant);
  }
}

function checkFormat(format: AudioFormat): AudioFormat {
  const { encoding, sampleRateHz, channels } = format;
  // Not every caller is checked by TypeScript.
  if (!["PCM_S16LE", "OPUS"].includes(encoding)) {
    throw new RangeError(`audioFormat.encoding: ${encoding} must be PCM_S16LE or OPUS`);
  }
  if (!Number.isInteger(sampleRateHz)) {
    throw new RangeError(`audioFormat.sampleRateHz: ${sampleRateHz} must be an integer`);
  }
  checkNumber("audioFormat.sampleRateHz", sampleRateHz, 8000, 48_000);
  if (channels !== 1 && channels !== 2) {
    throw new RangeError(`audioFormat.channels: ${channels} must be 1 or 2`);
  }
  return { encoding, sampleRateHz, channels };
}

function checkAudible({ encoding, sampleRateHz, channels }: AudioFormat): void {
  if (encoding !== "PCM_S16LE" || channels !== 1 || !VOICE_RATES.includes(sampleRateHz)) {
    const rates = VOICE_RATES.join(", ");
    throw new RangeError(
      `audioFormat: voice activity detection needs PCM of one channel at ${rates} Hz`,
    );
  }
}

function checkFeatures(features: Readonly<Record<string, string>>): Record<string, string> {
  const entries = Object.entries(features);
  if (entries.length > MAX_FEATURES) {
    throw new RangeError(`features: has ${entries.length}; at most ${MAX_FEATURES} are allowed`);
  }
  for (const [key, value] of entries) {
    const isText = typeof (value as unknown) === "string";
    if (!isText || Math.max(key.length, value.length) > MAX_FEATURE_CHARACTERS) {
      throw new RangeError(
        `features.${key.slice(0, 40)}: key and value must be text of at most ` +
          `${MAX_FEATURE_CHARACTERS} characters`,
      );
    }
  }
  return { ...features };
}
