/** A room as app developers see it. */

import { type Fields, fieldsOf, integerOf, messagesOf, textOf } from "../protocol/json.js";
import { parseOrigins } from "../session/addresses.js";
import { checkId, checkNumber } from "../session/checks.js";
import { Session } from "../session/session.js";
import { type Call, callRoom } from "./calls.js";
import type { Member, RoomInfo, RoomRole } from "./events.js";
import { Listener } from "./listener.js";
import {
  checkRoomToken,
  createRequest,
  type CreateRoomOptions,
  type ListenOptions,
  MAX_LIFETIME_S,
  type RoomOptions,
  type SpeakOptions,
} from "./options.js";
import { memberFrom, roomFrom } from "./protocol/wire.js";

/** With it others can join a room. */
export interface JoinToken {
  readonly token: string;
  /** In milliseconds since the epoch. */
  readonly expiresMs: number;
}

export interface JoinTokenOptions {
  readonly role: RoomRole;
  /** How long it is valid, in seconds; a day by default. */
  readonly lifetimeS?: number;
}

/** How many members to ask for at once. */
const PAGE_SIZE = 500;
/** A page may be empty although there are more. */
const MAX_PAGES = 10_000;

/**
 * One or more people speak, many listen, each in the language of their choice.
 *
 *     const room = await Room.create({ url: "https://example.org", name: "Lecture" });
 *     const { token } = await room.joinToken({ role: "listener" });
 *
 *     const listener = await new Room({ url, roomId: room.roomId, token }).listen({ language: "es" });
 *
 * Calls throw RoomRefusedError if a retry cannot help, such as ROOM_NOT_FOUND, and
 * RoomUnavailableError if no gateway can answer.
 */
export class Room {
  readonly roomId: string;
  /** The host's token, or a join token. */
  readonly token: string;
  #options: RoomOptions;
  #origins: readonly string[];

  constructor(options: RoomOptions) {
    checkId("roomId", options.roomId);
    this.roomId = options.roomId;
    this.token = checkRoomToken(options.token);
    this.#options = options;
    this.#origins = parseOrigins(options.url);
  }

  /** Makes a room. Its `token` is the host's, with which it can also be closed. */
  static async create(options: CreateRoomOptions): Promise<Room> {
    const { url, token = "", WebSocket } = options;
    const made = (answer: Fields): Room => {
      const { roomId } = roomFrom(fieldsOf(answer, "room"));
      const host = { url, roomId, token: textOf(answer, "hostToken") };
      return new Room(WebSocket === undefined ? host : { ...host, WebSocket });
    };
    return callRoom(parseOrigins(url), "create", token, createRequest(options), made);
  }

  /** Makes a token with which others can join. Only the host can. */
  async joinToken({ role, lifetimeS = 0 }: JoinTokenOptions): Promise<JoinToken> {
    if (!["listener", "speaker"].includes(role)) {
      throw new RangeError(`role: ${role} must be "listener" or "speaker"`);
    }
    checkNumber("lifetimeS", lifetimeS, 0, MAX_LIFETIME_S);
    const asked = { role: `ROOM_ROLE_${role.toUpperCase()}`, lifetimeS: Math.floor(lifetimeS) };
    return this.#call("token", { hostToken: this.token, ...asked }, (answer) => ({
      token: checkRoomToken(textOf(answer, "joinToken")),
      expiresMs: integerOf(answer, "expiresMs"),
    }));
  }

  /** Returns the room as it is now. */
  async get(): Promise<RoomInfo> {
    return this.#call("get", { token: this.token }, (answer) => roomFrom(fieldsOf(answer, "room")));
  }

  /** Yields the members of the room. Only the host and speakers can ask for them. */
  async *members(): AsyncGenerator<Member, undefined> {
    let pageToken = "";
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const asked = { token: this.token, pageSize: PAGE_SIZE, pageToken };
      const { members, next } = await this.#call("members", asked, (answer) => ({
        members: messagesOf(answer, "members").map(memberFrom),
        next: textOf(answer, "nextPageToken"),
      }));
      yield* members;
      if (next === "") {
        return;
      }
      pageToken = next;
    }
  }

  /** Ends the room for all members. Only the host can. Repeating it is no error. */
  async close(): Promise<void> {
    await this.#call("close", { hostToken: this.token }, () => undefined);
  }

  /**
   * Speaks to the room: opens a session whose results have a receipt, `room`, instead of texts. It
   * comes when all languages that somebody listens to have an outcome.
   *
   * Throws as `Session.open` does.
   */
  async speak({ language, name = "", ...options }: SpeakOptions): Promise<Session> {
    const { roomId, token } = this;
    const { WebSocket } = this.#options;
    return Session.open({
      ...options,
      ...(WebSocket === undefined ? {} : { WebSocket }),
      addresses: this.#origins,
      languages: { roomId, joinToken: token, language, name },
      token,
    });
  }

  /**
   * Listens to the room. Returns when the listener is in it.
   *
   * Throws RangeError or TypeError for wrong options.
   */
  async listen(options: ListenOptions): Promise<Listener> {
    return Listener.join(this.#options, options);
  }

  #call<T>(call: Call, body: object, read: (answer: Fields) => T): Promise<T> {
    return callRoom(this.#origins, call, this.token, { roomId: this.roomId, ...body }, read);
  }
}
