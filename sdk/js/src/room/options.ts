/** Checks the options of rooms and listeners by the rules of the contract. Throws RangeError. */

import {
  checkId,
  checkLanguage,
  checkNumber,
  checkText,
  checkWebSocket,
} from "../session/checks.js";
import {
  MAX_NAME_CHARACTERS,
  MAX_ROOM_TOKEN_CHARACTERS,
  type SessionOptions,
} from "../session/options.js";
import type { WebSocketConstructor } from "../session/socket.js";
import type { Listening, SpeakPolicy } from "./events.js";
import type { Joining } from "./protocol/stream.js";

/** Where a room is, and who uses it. */
export interface RoomOptions {
  /**
   * Equivalent gateways, such as "https://example.org" or a list of these.
   */
  readonly url: string | readonly string[];
  readonly roomId: string;
  /**
   * A token of the room: the host's, or a join token. It is also what authenticates this app, so
   * members need no other token.
   */
  readonly token: string;
  /** Node.js 20 has no WebSocket: pass that of the package ws. */
  readonly WebSocket?: WebSocketConstructor;
}

export interface CreateRoomOptions {
  readonly url: string | readonly string[];
  /** For people. */
  readonly name?: string;
  /** Languages that members may speak and listen to; none: any. */
  readonly languages?: readonly string[];
  /** Who may speak; "invited" by default. */
  readonly speak?: SpeakPolicy;
  /** Limits, at most the gateway's own, which are the default. Speakers and listeners together. */
  readonly maxMembers?: number;
  /** Speakers at the same time. */
  readonly maxSpeakers?: number;
  /** Languages that are listened to at the same time. */
  readonly maxLanguages?: number;
  /** The tenant of the room, if the deployment has tenants. */
  readonly tenant?: string;
  /** Authenticates this app, if the gateways want that. */
  readonly token?: string;
  readonly WebSocket?: WebSocketConstructor;
}

export interface ListenOptions {
  readonly language: string;
  /** Whether to receive texts; true by default. */
  readonly captions?: boolean;
  /** Whether to receive translated speech; for speakers of the same language, their own voice. */
  readonly speech?: boolean;
  /** Whether to receive the audio of the speaker, whatever its language. */
  readonly originalAudio?: boolean;
  /** For the roster. */
  readonly name?: string;
  /** Whether to receive `status` events. */
  readonly status?: boolean;
  /**
   * How long to look for a gateway before giving up. By default 10 s for the first connection, and
   * 5 minutes later.
   */
  readonly reconnectMs?: number;
}

/** Options of a session that speaks to a room: what it speaks, and all others of a session. */
export interface SpeakOptions extends Omit<
  SessionOptions,
  "addresses" | "languages" | "tenant" | "token" | "requireTts" | "WebSocket"
> {
  readonly language: string;
  /** Shown to listeners. */
  readonly name?: string;
}

const MAX_ROOM_NAME_CHARACTERS = 100;
const MAX_LANGUAGES = 64;
const MAX_MEMBERS_LIMIT = 1_000_000;
const MAX_SPEAKERS_LIMIT = 10_000;
const MAX_LANGUAGES_LIMIT = 1000;
const DAY_S = 86_400;
export const MAX_LIFETIME_S = 30 * DAY_S;

/** What fits into a WebSocket's subprotocol, as every token of a room does. */
const ROOM_TOKEN = /^[A-Za-z0-9._~+-]+$/;

export function checkRoomToken(token: string): string {
  if (typeof (token as unknown) !== "string" || !ROOM_TOKEN.test(token)) {
    throw new RangeError("token: must be the token of a room, as Room.create or joinToken gave it");
  }
  return checkText("token", token, MAX_ROOM_TOKEN_CHARACTERS);
}

/** Returns the request for a room in protobuf's JSON form. */
export function createRequest(options: CreateRoomOptions): object {
  const { name = "", languages = [], speak = "invited", tenant = "" } = options;
  const { maxMembers = 0, maxSpeakers = 0, maxLanguages = 0 } = options;
  checkText("name", name, MAX_ROOM_NAME_CHARACTERS);
  if (languages.length > MAX_LANGUAGES) {
    throw new RangeError(
      `languages: has ${languages.length}; at most ${MAX_LANGUAGES} are allowed`,
    );
  }
  languages.forEach((each, at) => checkLanguage(`languages[${at}]`, each));
  if (!["invited", "anyone"].includes(speak)) {
    throw new RangeError(`speak: ${speak} must be "invited" or "anyone"`);
  }
  checkNumber("maxMembers", maxMembers, 0, MAX_MEMBERS_LIMIT);
  checkNumber("maxSpeakers", maxSpeakers, 0, MAX_SPEAKERS_LIMIT);
  checkNumber("maxLanguages", maxLanguages, 0, MAX_LANGUAGES_LIMIT);
  if (tenant !== "") {
    checkId("tenant", tenant);
  }
  const limits = { maxMembers, maxSpeakers, maxLanguages };
  const policy = `SPEAK_POLICY_${speak.toUpperCase()}`;
  return { options: { name, languages: [...languages], speak: policy, ...limits }, tenant };
}

/** Returns what a listener wants to receive. */
export function checkListening(options: ListenOptions): Listening {
  const { captions = true, speech = false, originalAudio = false } = options;
  const language = checkLanguage("language", options.language);
  if (!captions && !speech && !originalAudio) {
    throw new RangeError("captions: one of captions, speech and originalAudio must be true");
  }
  return { language, captions, speech, originalAudio };
}

/** Options of a listener with their defaults. */
export interface CheckedListening {
  readonly listening: Listening;
  readonly joining: Joining;
  readonly reconnectMs: number | null;
  readonly webSocket: WebSocketConstructor;
}

export function checkListener(room: RoomOptions, options: ListenOptions): CheckedListening {
  const { name = "", status = false, reconnectMs } = options;
  checkText("name", name, MAX_NAME_CHARACTERS);
  if (reconnectMs !== undefined) {
    checkNumber("reconnectMs", reconnectMs, 0, 1000 * DAY_S);
  }
  return {
    listening: checkListening(options),
    joining: { roomId: room.roomId, joinToken: room.token, name, status },
    reconnectMs: reconnectMs ?? null,
    webSocket: checkWebSocket(room.WebSocket),
  };
}
